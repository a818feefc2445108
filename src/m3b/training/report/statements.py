"""What a report states, and what it denies: scopes of negation, after NegEx (Chapman et al., J. Biomed. Inform. 34, 2001)."""

from __future__ import annotations

import re

_CLAUSE_ENDS = re.compile(
    r"[.;:!?\n\u3002\uff1b]+(?!\d)|\bbut\b|\bhowever\b|\balthough\b|\bexcept\b"
    r"|\bthere (?:is|are|has been)\b|\baber\b|\bpero\b|\bmais\b"
)
_NO_DENIALS = re.compile(
    r"\b(?:no|not|without)(?: (?:any|significant|significantly|substantial|appreciable|definite|interval|further|real))*"
    r" (?:change|changed|changes|increase|increased|decrease|difference|progression|improvement|only|excluded|be excluded|ruled out)\b"
    r"|\b(?:cannot|can not|could not|may not) (?:be )?(?:excluded?|ruled out|rule out)\b"
)
"""What looks like a denial and states: no change in the effusion; pneumonia cannot be excluded."""
_EMPTY_ANSWERS = re.compile(r":\s*(?:none|no|absent|negative|nil|not seen)\s*(?=[.,;\n]|$)")
_BEFORE = re.compile(
    r"\b(?:no|not|without|absent|none|nor|never|kein|keine|keinen|keiner|ohne|nicht|sin|ni|ningun|ninguna|sans|pas|aucun|aucune|senza|"
    r"non(?!-)|nessun|nessuna|sem|nao|geen|niet|zonder|inga|ingen|utan|free of|clear of|negative for|absence of|rather than|ruled out|"
    r"rule out|resolved|resolution of|clearance of|clearing of|removal of|removed|history of|evaluate for|assess for)\b"
)
"""Words that deny what follows in their scope; a history and a question are no statements of what is seen either."""
_BEHIND = re.compile(
    r"\bno longer\b|\b(?:is|are|was|were) (?:absent|excluded|ruled out|not|gone)\b"
    r"|\b(?:has|have) (?:now |since )?(?:been )?(?:completely )?(?:resolved|cleared|been removed|removed|disappeared)\b"
    r"|\bnot (?:seen|present|identified|detected|visuali[sz]ed|appreciated|evident|noted|demonstrated|shown|apparent)\b"
)
"""Words that deny what stands before them."""
_NEW_STATEMENT = re.compile(
    r"(?:and |with |und |y |et )?(?:an?|the|there|which|small|tiny|trace|minimal|mild|mildly|moderate|moderately|large|severe|marked|"
    r"extensive|diffuse|stable|unchanged|persistent|persisting|residual|new|increased|increasing|decreased|decreasing|improved|improving|"
    r"worsened|worsening|chronic|old|bilateral|bibasilar|bibasal|left|right|patchy|linear|low|enlarged|elevated|calcified|status|interval|"
    r"prominent|probable|possible|likely|subtle|scattered|multiple|several|degenerative|known|kleine?[rsn]?|geringe?[rsn]?|m\u00e4\u00dfige?[rsn]?|"
    r"gro\u00dfe?[rsn]?|neue?[rsn]?|leichte?[rsn]?|bekannte?[rsn]?|peque\u00f1[oa]s?|leves?|moderad[oa]s?|grandes?|petite?s?|mod\u00e9r\u00e9e?s?|nouve(?:au|lle)s?)\b"
)
"""How a part of a sentence begins that states something new after a denial: "no pneumothorax, small left effusion"."""
_JOINTS = re.compile(r"\b(?:and|with|und|y|et)\b(?= )")
_LIST_ENDS = re.compile(r"^(?:or|nor|and|oder|und|o|ni|ou|et)\b|\b(?:or|nor|oder|ou)\b")


def stated_parts(text: str) -> list[str]:
    """Return the parts of a report, in lower case, that are stated and not denied.

    A denial reaches over commas and "or" to the end of its clause, but not over what begins a new statement. Doubt ("cannot exclude")
    counts as a statement; what has resolved, was removed, or belongs to the history does not.
    """
    plain = _EMPTY_ANSWERS.sub(" is absent", _NO_DENIALS.sub(" ", text.lower()))
    return [part for clause in _CLAUSE_ENDS.split(plain) for part in _stated(clause) if part]


def _stated(clause: str) -> list[str]:
    items = [item.strip() for item in clause.split(",")]
    last = max((place for place, item in enumerate(items) if place and _LIST_ENDS.search(item)), default=-1)
    found: list[str] = []
    denied = False
    for place, item in enumerate(items):
        behind = _BEHIND.search(item)
        if behind:
            if place == last:
                found.clear()
            item = item[behind.end() :]
        elif denied and place > last and _NEW_STATEMENT.match(item):
            denied = False
        while item:
            before = _BEFORE.search(item)
            if not denied:
                found.append(item[: before.start() if before else len(item)].strip())
            if not denied and before is None:
                break
            denied = True
            rest = item[before.end() :] if before else item
            joint = next(
                (match for match in _JOINTS.finditer(rest) if _NEW_STATEMENT.match(rest[match.end() :].strip())), None
            )
            if joint is None:
                break
            item, denied = rest[joint.end() :].strip(), False
    return found
