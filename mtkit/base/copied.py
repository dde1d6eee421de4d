"""What a translation copies: addresses, placeholders of programs, tags. One table of their forms.

Each row is a pattern, where it comes from and what it is for. A form that ordinary text could also
have is narrowed down, because a false one would take words out of a sentence: `50%ige`, `AT&T`,
`5:30`, `z.B.` and `end.Next` have none. Nothing is tried twice: a long text would take minutes.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable

# Letters and digits of the scripts with spaces between words, up to Sinhala. Those of others, such
# as Chinese, stand beside an address without a space.
_L = r"A-Za-z0-9_\u00c0-\u0dff"
# The characters of RFC 3986, and letters. Brackets are in an address in pairs.
_URL = rf"(?:[!#-'*-;=?-~{_L}]|\([!#-'*-;=?-~{_L}]*+\))*(?<![.,;:!?'*_\]}}])"
# Well-known top-level domains of the list of IANA that are no words. Those that are, such as .it
# and .me, count with a path behind them.
_DOMAIN = (
    "com|org|net|edu|gov|mil|int|info|biz|io|dev|app|eu|uk|de|fr|nl|pl|cz|ch|ru|su|jp|cn|br|au|ca|"
    "kr|tr|ua|hu|ro|gr|pt|fi|dk|se|ie|nz|mx|ar|za|il|ir|tv|xyz|cloud|online|site|shop|tech|рф"
)
# The ends of file names: frequent ones of the media types of IANA, and of programs.
_END = (
    "txt|pdf|docx?|xlsx?|pptx?|od[tsp]|rtf|csv|tsv|json|xml|xlf|xliff|tmx|ya?ml|toml|ini|cfg|conf|"
    "html?|css|jsx?|tsx?|py|rb|rs|java|cpp|php|sh|bat|sql|exe|dll|jar|apk|deb|rpm|iso|zip|gz|bz2|"
    "xz|tar|7z|rar|jpe?g|png|gif|svg|webp|bmp|tiff?|ico|mp[34]|wav|ogg|flac|avi|mkv|mov|md|rst|log|"
    "po|pot|mo|srt|vtt|epub|bak|db|bin|ipynb"
)
_START, _AFTER = rf"(?<![{_L}.@/\\-])", rf"(?![{_L}-]|\.[{_L}])"
_NAME = rf"{_START}(?:[{_L}-]++\.)+"

ADDRESSES = rf"""
    (?<![{_L}])(?i:[a-z][a-z0-9+.-]{{1,9}}://|www\.)(?:[^\0-\x7f]\w*+\.)?{_URL}  # RFC 3986, 3987
  | (?<![{_L}.+-])(?:mailto:)?[{_L}.+-]++@[{_L}-]++(?:\.[{_L}-]++)+              # RFC 5322, 6531
  | {_NAME}(?:{_DOMAIN}){_AFTER}(?:[:/]{_URL})?       # hosts: example.org example.org/path
  | {_NAME}[a-z]{{2,24}}/(?=[A-Za-z0-9]){_URL}        # example.it/path
  | {_START}(?:[{_L}.-]++/)*+(?:[{_L}-]++\.)+(?:{_END}|{_END.upper()}){_AFTER}   # files: a/b.pdf
  | (?<![{_L}])[A-Za-z]:\\(?:[^\\/:*?"<>|\n]{{1,64}}+\\)*+   # paths of Windows
      [^\\/:*?"<>|\s“”„‘’«»]*(?<![.,;!?)])
  | (?<![^\s("'„“‘«=])(?:(?:~|\.\.?)/(?=[\w.])|/[{_L}.+-]++/)[{_L}.+@/:-]*(?<![.,:-])   # of Unix
"""

# 5%ige has none. In Turkish and Basque, %50 and %5'i are percentages; $US 5 is an amount.
PLACEHOLDERS = r"""
    \{\{\{[^{}]*+\}\}\} | \{\{[^{}]*+\}\}        # Mustache, Angular, Vue: {{ x }}
  | \{%[^{}]*+\}(?<=%\}) | <%[^<>]*+>(?<=%>)     # Jinja, Twig, Liquid: {% x %}; ERB: <%= x %>
  | <\?(?:[^?]|\?(?!>))*+\?>                      # PHP: <?= $x ?>
  | [$#%@]?\{[^{}\s]*+\} | [$#]\{[^{}]*+\}   # ICU, Python, Ruby, shell: {0} {x:d} %{x} ${x} #{x}
  | \{\s*+(?:[\w.-]++\s*+,\s*+(?:plural|select|selectordinal|choice)\s*+,|\$[\w-]++\s*+->)
      (?:[^{}]++|\{(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\})*+\}  # ICU, Java, Fluent
  | \{\s*+[\w.-]++\s*+,[^{}]*+\}                 # ICU, Java: {n, number}
  | \{\s*+[$-]?\w[\w.-]*+(?:\([^(){}]*+\))?\s*+\}             # Fluent: { $x } { -x } { F($x) }
  | %\#@\w++@                                   # iOS: %#@x@
  | (?<![\d%])%(?!ll[diux]%)[A-Za-z_]\w{2,}+%(?![\w%(@+*#{-]|\.\d)   # Windows: %X%; not %dkm%s
  | %(?!(?<=\d%)-?[^\W\d_]{2})(?:\d++\$|\([\w.]++\)|<\w++>)?[-+0#]*+(?:\*|\d*+)
      (?:\.(?:\*|\d++))?(?:hh|ll|[hlLzjt])?[@diouxXeEfFgGaAcCspnS]  # printf, Python: %1$s %(x)d
  | %% | (?<![\d%])%[-+#]?[bBhHIjkmMpPqStTUvVwWyYzZ](?![^\W\d_])  # printf: %%; strftime: %Y; Go: %v
  | (?<!(?<![%L])\d)(?<!%)%L?[1-9](?!\d|[.,]\d|['’]?[^\W\d_])(?:%(?![\w%(]))?   # Qt: %1; Boost: %1%
  | \$\w*+\([^()]*+\)                                               # Make: $(X); i18next: $t(x)
  | (?<![\w$])\$(?![A-Z]{2}\b)[A-Za-z_]\w++(?![ \u00a0]?\d)         # shell, PHP: $NAME $name
  | (?<![^\s(\["'])(?<!\d[ \u00a0]):[A-Za-z_]\w++:?+       # Rails, Laravel: :name; emoji: :name:
  | (?<![\w@])@(?:\.[a-z]++)?:(?:\w[\w.]*\b|\([^()]*+\)|\{[^{}]*+\})   # vue-i18n: @:key @.lower:key
  | (?<![\w@.])@[A-Za-z_]\w++ | (?<![\w#])\#[A-Za-z_]\w++\#(?![\w#])   # Drupal, names of users; #x#
  | (?!\\[(\[](?=[^\\^_=]*+\\[)\]])[^\\^_=]*?[^\W\d_]{3})   # not words: \[see below\]
      (?:\\\((?:[^\\]|\\(?![()]))*+\\\) | \\\[(?:[^\\]|\\(?![\[\]]))*+\\\])
  | \$\$[^$]++\$\$(?!\d)                                         # LaTeX: \(x\) \[x\] $$x$$
  | \\\([\w.]++\) | \\[nrt](?![a-z])             # Swift: \(x); escapes: \n
  | \*\|[^|*]++\|\*                              # Mailchimp: *|X|*
  | </?\d{1,3}\s?/?> | \[\[[^\[\]]*+\]\] | \[X\d++X\]    # i18next: <0> </0>; wikis: [[x]]; Weblate
  | \[\d++[}>] | [{<]\d++\] | \{\d++> | <\d++\}    # memoQ: [1} {2] [1> <2] {1> <1}
  | \[(?:/|(?=[a-z]++[^\[\]]*+\][^\[\]]{1,500}+\[/?[a-z]))      # BBCode: [b]x[/b] [url=x]y[/url]
      (?:b|i|u|s|url|img|quote|code|color|size)(?:=[^\[\]]*+)?\]
  | \[/?\w++(?:\s++[\w-]++=(?:"[^"]*+"|'[^']*+'))++\s*+/?\]          # WordPress: [x id="3"]
  | (?<![^\s(\["'„“«>])&(?!c\b|\w++;)(?=[^\W\d_])             # Qt, Windows: &Open; not AT&T, &lt;
  | (?<![^\s(\["'„“«>])_(?=[A-Z][a-z])(?![^_]*+(?<=\w)_)           # GTK: _Open
"""

# They have letters but no language. Alone they are copied; inside of a sentence they are text.
_CODES = r"""\b(?:[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}     # RFC 9562
    | 0[xX][\da-fA-F]+|\d+(?:\.\d+)?[eE][+-]?\d+                 # numbers of programs
    | (?:[vV]\d+|\d+\.\d+)(?:\.\d+)*(?:-?(?:alpha|beta|rc)[.\d]*)?  # versions
    | \d{4}-\d\d-\d\dT\d\d:[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?         # times, ISO 8601
    | (?=[a-f]*\d)[\da-f]{32,})(?!\w)                            # checksums
    | \#(?=[a-fA-F]*\d)(?:[\da-fA-F]{3}){1,2}(?!\w)              # colours"""
# Digits and single letters, which belong to a placeholder if there is no space between them.
_CHARACTER = r"(?:\d|(?<![^\W\d_])[^\W\d_](?![^\W\d_]))"
_GLUED_BEFORE = re.compile(rf"(?<![^\W_])(?:{_CHARACTER}[-+/.:=_]*)+\Z")
_GLUED_BEHIND = re.compile(rf"(?:[-+/.:=_]*{_CHARACTER})+(?![^\W_])")
# What stands beside the signs of some of them.
_NAME_BEHIND = re.compile(r"\.(?:[^\W\d]\w|\d[^\W\d])")
_WORD_BEHIND = re.compile(r":(?://|[A-Za-z_])|\$[A-Za-z_(]|/(?<![^\s~.(\"'„“‘«=]/)[\w.]")

# A tag in a text: whether it is an end, its name, its attributes with the slash. `x <y and z>` has
# none: a word without a value is an attribute only if HTML has it, or with a sign of a framework.
_ALONE = (
    "allowfullscreen|async|autofocus|autoplay|border|checked|compact|controls|crossorigin|default|"
    "defer|disabled|download|hidden|inert|ismap|itemscope|loop|multiple|muted|nomodule|noshade|"
    "novalidate|nowrap|open|playsinline|readonly|required|reversed|selected"
)
TAG = re.compile(
    r"<(/?)([A-Za-z][\w:.-]*+)((?>\s++(?:"
    r"[^\s<>\"'/=]++\s*=\s*\\?(?:\"[^\"]*+\"(?=[\s/>])|'[^']*+'(?=[\s/>])|[^\s<>]*+)"
    rf"|(?i:{_ALONE})(?=[\s/>])|\w+[-:]\w[\w:.-]*(?=[\s/>])"
    r"|[%$*#@:\[(][^\s<>]*+|\{++[^{}<>]*+\}++))*+\s*+/?)>"
)


@functools.cache
def copied() -> re.Pattern[str]:
    """Matches an address or a placeholder; the group of a match is its kind."""
    # All placeholders begin with one of these signs.
    placeholders = rf"(?=[%{{$#@\[<:&\\*_])(?P<placeholders>{PLACEHOLDERS})"
    return re.compile(rf"(?P<addresses>{ADDRESSES})|{placeholders}", re.VERBOSE)


def may_have_copied_parts(text: str) -> bool:
    """Whether a text may have an address or a placeholder, asked in the fastest way."""
    return (
        "%" in text or "{" in text or "<" in text or "&" in text or "@" in text or "\\" in text
        or "[" in text or "_" in text or "*|" in text or "#" in text
        or _NAME_BEHIND.search(text) is not None
        or ((":" in text or "$" in text or "/" in text) and _WORD_BEHIND.search(text) is not None)
    )  # fmt: skip


def copied_parts(texts: Iterable[str]) -> Counter[str]:
    """The addresses and placeholders in some texts, each by itself."""
    return Counter(
        match[0]
        for text in filter(may_have_copied_parts, texts)
        for match in copied().finditer(text)
    )


def glued(match: re.Match[str], first: int, last: int) -> tuple[int, int]:
    """The place of a match of `copied` with the digits and single letters at it: `4-{x}`, `{x}-b`.

    It begins at `first` or later, ends at `last` or earlier, and is at most 20 characters longer at
    each side than the match.
    """
    start, end = match.span()
    if match[0][0] not in "%{$#@":
        return start, end
    before = _GLUED_BEFORE.search(match.string, max(first, start - 20), start)
    behind = _GLUED_BEHIND.match(match.string, end, min(last, end + 20))
    return before.start() if before else start, behind.end() if behind else end


def has_letters(text: str) -> bool:
    """Whether a text has letters, of any script; numbers, signs and emoji have none."""
    return any(map(str.isalpha, text))


def has_language(text: str) -> bool:
    """Whether a text has letters outside of addresses, placeholders and codes of programs."""
    if not has_letters(text):
        return False
    rest = copied().sub(" ", text) if may_have_copied_parts(text) else text
    # All codes have a digit or a hyphen.
    may_have_codes = "-" in rest or any(map(str.isdigit, rest))
    return has_letters(re.sub(_CODES, " ", rest, flags=re.VERBOSE) if may_have_codes else rest)
