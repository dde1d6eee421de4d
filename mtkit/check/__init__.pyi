from .checker import Checked as Checked, Checker as Checker, Decoded as Decoded
from .compare import (
    ComparedSystem as ComparedSystem,
    ComparedText as ComparedText,
    comparison_page as comparison_page,
    learned_checker as learned_checker,
)
from .confidence import Quality as Quality
from .facts import (
    UNDETERMINED as UNDETERMINED,
    PairFacts as PairFacts,
    language_of as language_of,
)
from .findings import KINDS as KINDS, Finding as Finding
from .fit import fit_pairs as fit_pairs, fit_run as fit_run
from .limits import MAX_SAMPLED as MAX_SAMPLED
from .report import (
    BlockReport as BlockReport,
    Counts as Counts,
    FindingTable as FindingTable,
    check_block as check_block,
    sortable_rows as sortable_rows,
)
from .run_checks import (
    RunChecks as RunChecks,
    decoded_of as decoded_of,
    load_checker as load_checker,
    warn_of_checkpoint as warn_of_checkpoint,
)
