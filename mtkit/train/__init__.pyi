from .assembly import run as run
from .dry_run import forecast as forecast, forecast_without_data as forecast_without_data
from .launcher import TRANSIENT as TRANSIENT, is_launched as is_launched, launch as launch
