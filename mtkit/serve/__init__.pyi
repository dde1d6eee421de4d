from .access import Access as Access, read_keys as read_keys
from .directions import Directions as Directions
from .server import Server as Server, listen as listen
from .service import Limits as Limits, Service as Service
