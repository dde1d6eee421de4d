from .checker import Checked as Checked, Checker as Checker, Decoded as Decoded
from .comparison import (
    ComparedSystem as ComparedSystem,
    comparison_page as comparison_page,
    learned_checker as learned_checker,
)
from .model.confidence import (
    FOREIGN as FOREIGN,
    Forecast as Forecast,
    Quality as Quality,
    Verdict as Verdict,
)
from .rules.damage import misread as misread
from .rules.facts import (
    UNDETERMINED as UNDETERMINED,
    PairFacts as PairFacts,
    language_of as language_of,
)
from .rules.findings import KINDS as KINDS, Finding as Finding
from .rules.marks import Text as Text
from .rules.rules import in_other_languages as in_other_languages
from .model.fit import fit_pairs as fit_pairs, fit_run as fit_run
from .rules.limits import BELOW as BELOW, MAX_SAMPLED as MAX_SAMPLED, MIN_LETTERS as MIN_LETTERS
from .report import (
    BlockReport as BlockReport,
    Counts as Counts,
    FindingTable as FindingTable,
    check_block as check_block,
    sortable_rows as sortable_rows,
)
from .text_language import (
    InputLanguage as InputLanguage,
    note_wrong_files as note_wrong_files,
    changed_pairs as changed_pairs,
    with_languages_noted as with_languages_noted,
    wrong_languages as wrong_languages,
)
from .model.prober import Prober as Prober, decoded_of as decoded_of
from .model.run_quality import (
    RunChecks as RunChecks,
    load_checker as load_checker,
    no_forecast as no_forecast,
    warn_of_checkpoint as warn_of_checkpoint,
)
