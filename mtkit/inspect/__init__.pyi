from .inspection import Inspection as Inspection, inspect_pair as inspect_pair
from .page import (
    PageEntry as PageEntry,
    index_page as index_page,
    inspection_page as inspection_page,
)
