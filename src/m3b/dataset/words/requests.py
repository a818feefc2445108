"""What a request claims: task, targets, classes, modality, anatomy, dimension, unit; and whether a folder's words bear it out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from m3b.dataset.words.lexicon import STOP_WORDS, Lexicon, Unit, fold_text, get_lexicon, split_tokens
from m3b.dataset.words.matching import (
    GENERIC_CONCEPTS,
    MATCH_SCORE,
    have_common_ancestor,
    is_negative,
    match_classes,
    match_term,
)

TaskHint = Literal["diagnosis", "segmentation", "detection", "report", "grading", "regression", "survival"]
AnswerForm = Literal["", "masks", "boxes", "points", "count"]
Dimension = Literal["", "2d", "3d", "video"]
ClaimKind = Literal["modality", "dimension", "colour", "anatomy", "target", "classes"]
Verdict = Literal["supported", "contradicted", "silent", "unknown"]
"""`unknown`: nothing in the folder mentions what is asked for, and it is no clinical term."""

_MAX_WORDS_OF_CLASS = 7
_MAX_REQUEST = 2000
"""Characters of a request that are read."""
_VERBS: dict[str, str] = {
    "segment": (
        r"segment(?!ation|ier)\w*|segmentier\w*(?<!ung)|delineat\w*|outlin\w*|(?:auto-?)?contour\w*|trac(?:e|es|ing)\b"
        r"|umrand\w*|umreiß\w*|konturier\w*|zeichne\w*|eingezeichnet\b|abgrenz\w*|délimit\w*|detour\w*|détour\w*|"
        r"delimit\w*|contorn\w*|draw|(?:colou?r|paint|shade)\s+(?:in\s+)?(?:each|every|all|the)\b|分割(?!模型|网络)|勾画|勾勒"
    ),
    "count": r"count\w*\b|how many|zähl\w*|wie ?viele|compte[rz]?\b|combien|dénombre\w*|cont(?:ar|ad)\b"
    r"|cuent[ae]\w*|cuánt[oa]s|计数|数出|统计|多少",
    "grade": (
        r"grad(?:e|es|ing)\b|(?<!la )rate\b(?!\s*(?:[,;.)]|et\b|ou\b|sur\b|$))|scor(?:e|es|ing)\b|stag(?:e|es|ing)\b|stufe\w*"
        r"|graduier\w*|bewert\w*|grader\b"
        r"|gradue\w*|graduar\w*|"
        r"gradú\w*|estadific\w*|évalue(?!\w*\s+sur\b)\w*|evalu(?!\w*\s+(?:it\s+)?(?:on|with|using|against|en|con)\b)[aeé]\w*|分级|评级|分期|评分"
    ),
    "predict": (
        r"predict\w*|estimat\w*|measur\w*|regress\w*|quantif\w*|forecast\w*|how old|schätz\w*|sage\b|sagen\b"
        r"|vorhers\w*|bestimm\w*|miss\b|mess\w*|"
        r"ermittl\w*|d[ée]termin\w*|prédi\w*|estim\w*|mesur\w*|predec\w*|predic\w*|med(?:ir|id)\b|mide|calcul(?:e[rz]?|ar?|ate\w*)\b|预测|估计|测量|估算"
    ),
    "classify": (
        r"classif(?!ic|ier)\w*|(?:know|check|see)\s+(?:whether|if)|prüf\w*|vérifi\w*|comprob\w*|distinguish\w*"
        r"|tell(?:s|ing)?\b|differentiat\w*|separat\w*|discriminat\w*|diagnos\w*|recogni[sz]\w*|sort(?:s|ing)?\b"
        r"|categori[sz]e\w*|sortier\w*|"
        r"find\s+out\b|sag(?:en?|t)?\b(?=\s+(?:mir|uns)\b|[^.]{0,20}\bob\b)|d(?:is|ites)(?:-moi|-nous)?\b(?=\s+si\b)|d[ií](?:me|nos|game)\b"
        r"|decid\w*|décide\w*|decir\b|dire\b|say\b|screen\w*|klassifizier(?!ung)\w*|unterscheid\w*|ordne\w*|trenn\w*|diagnostizier\w*"
        r"|entscheide\w*|teile\b|class(?:e|er|ez)\b|"
        r"disting\w*|différenci\w*|diagnosti\w*|reconna\w*|clasific(?!ació|ador)\w*|distingu\w*|diferenci\w*"
        r"|diagnosti[cq]\w*|reconoc\w*|separ\w*|"
        r"分类(?!模型|器|网络|任务)|区分|诊断|鉴别|识别|判断|分辨|辨别"
    ),
    "detect": (
        r"detect(?!ion|or)\w*|find(?:s|ing)?\b|locat\w*|locali[sz]\w*|spot\b|identif\w*|mark(?:s|ed|ing)?\b|show\b"
        r"|erkenn(?!ung)\w*|find(?:e|en|et)\b|gefunden\b|lokalisier\w*|entdeck\w*|"
        r"markier\w*|such\w*|détect(?!ion)\w*|trouv\w*|repér\w*|localis\w*|cherch\w*|encontr\w*|encuentr\w*"
        r"|localiz\w*|busc\w*|检测(?!模型|器|网络)|检出|定位|发现|寻找|找出|查找|标出"
    ),
    "write": (
        r"writ(?:e|es|ing)\b|produc\w*|generat\w*|draft\w*|compos\w*|dictat\w*|describ\w*|schreib\w*|verfass\w*"
        r"|erstell\w*|beschreib\w*|rédig\w*|écri\w*|"
        r"génér\w*|décri\w*|redact\w*|escrib\w*|gener[ae]\w*|describ\w*|生成|撰写|书写|描述"
    ),
}  # fmt: skip
"""Verb -> pattern of its forms in five languages."""
_TASKS_OF_VERB: dict[str, tuple[TaskHint, ...]] = {
    "segment": ("segmentation",),
    "count": ("regression", "detection", "segmentation"),
    "grade": ("grading", "diagnosis", "regression"),
    "predict": ("regression", "diagnosis", "grading"),
    "classify": ("diagnosis", "grading"),
    "detect": ("detection", "diagnosis", "segmentation"),
    "write": ("report",),
}
_ATTRIBUTE = re.compile(
    r"\b(?:(?:sub)?types?|kinds?|categor(?:y|ies)|origins?|Typ|Typen|Arten?|Kategorien?|Herkunft|catégories?|origines?"
    r"|tipos?|categorías?|orígen(?:es)?)\b|类型|种类|类别|来源",
    re.IGNORECASE,
)
"""Words for what is classified that stand before the thing that has it: the type of a tissue."""
_HAS_TYPE = re.compile(r"\s+(?:of|in|der|des|de|du|del|von)\s+", re.IGNORECASE)
"""What stands between the name of a type and the thing that has it."""
_TASK_NOUNS = re.compile(
    r"\b(segmentation|segmentierung|detection|detektion|erkennung|classification|classifier|klassifikation"
    r"|klassifizierung|diagnosis of|grading|"
    r"regression|counting|zählung|détection|segmentación|detección|clasificación|clasificador|estimation"
    r"|prediction|vorhersage|modell?|modèle|"
    r"modelo|localization|localisation|lokalisierung)\b|分割模型|检测模型|分类模型|模型",
    re.IGNORECASE,
)
_TASK_OF_NOUN: dict[tuple[TaskHint, ...], str] = {
    ("segmentation",): r"segment|分割",
    ("diagnosis",): r"classif|klassifi|clasific|diagnos|分类|诊断",
    ("grading",): r"grading|分级",
    ("regression",): r"regression|estimat|回归",
}
_SURVIVAL = re.compile(
    r"\bsurvival\b|\bsurviv\w+|time[- ]to[- ](?:event|death|relapse|recurrence|progression)|\bprognos(?:is|tic"
    r"|e)\b|\bhazards?\b|überleb\w*|"
    r"\bhow long\b[^.]{0,60}\b(?:live|lives|survive)\b|\bwie lange\b[^.]{0,60}\bleben\b|"
    r"\bsurvie\b|\bpronostic\b|supervivencia|pronóstico|生存|预后",
    re.IGNORECASE,
)
_REPORT = re.compile(
    r"\breports?\b|findings|impression|caption|bericht\w*|befund\w*|arztbrief|compte[- ]?rendu|rapport|légende"
    r"|informes?|hallazgos|报告|描述|所见",
    re.IGNORECASE,
)
_OPEN_TARGET = re.compile(
    r"(?:(?:the|any|all|every|die|alle|les|toutes les|las|los|todos los|todas las)\s+)?"
    r"(?:(?:abnormal|pathological|suspicious|abnorme|auffällige|pathologische|verdächtige)\s+)?"
    r"(?:findings?|abnormalit(?:y|ies)|anomal(?:y|ies)|patholog(?:y|ies)|conditions|befunde?|auffällig(?:keiten)?|pathologien|anomalies|pathologies|hallazgos|anomalías|patologías"
    r"|异常|所见|病变)"
    r"|everything|alles|tout|todo|全部|所有"
    r"|(?:what|was|ce qui|lo que)\b.{1,12}\b(?:wrong|abnormal|unusual|falsch|auffällig|anormal|mal)(?:\s+ist)?",
    re.IGNORECASE,
)
"""A target that names no finding, but all that there are."""
_PARTS = re.compile(
    r"(?:[^\W\d_]+\s+){0,2}(?:regions|structures|substructures|parts|areas|zones|lobes|organs|Regionen|Strukturen|Bereiche|Organe|Anteile"
    r"|régions|structures|organes|parties|regiones|estructuras|órganos|partes)(?:\s+(?:of|in|de|du|des|del|der|von|at)\b.*)?",
    re.IGNORECASE,
)
"""A target that stands for all parts of a thing: "regions of the brain"."""
_MARKED = re.compile(
    r"\s*\b(?:(?:that|which|was|die|(?:ce )?qui|(?:lo )?que)\s+(?:(?:is|are|ist|sind|est|sont|está|están)\s+)?)?"
    r"(?:(?:annotated|labell?ed|marked|outlined|delineated|contoured|segmented)"
    r"|(?:annotiert|markiert|gekennzeichnet|eingezeichnet|beschriftet|segmentiert)(?:e[nrs]?)?"
    r"|(?:annoté|marqué|étiqueté|segmenté|délimité|contouré)e?s?"
    r"|(?:anotad|marcad|etiquetad|segmentad|delimitad|señalad)[oa]s?)\b(?:\s+(?:ist|sind))?\s*"
    r"|已?(?:标注|标记|勾画)的?",
    re.IGNORECASE,
)
"""Words that say of a thing that it is marked: "annotated structures", "everything that is marked"."""
_GENERIC_NOUN = re.compile(
    r"(?:(?:the|all|every|die|alle|les|tous|toutes|las|los|todos|todas)\s+)*"
    r"(?:lesions?|objects?|things?|classes|läsionen|objekte|klassen|lésions?|objets?|lesiones|objetos?|clases"
    r"|病灶|结构|区域|目标|物体)?",
    re.IGNORECASE,
)
"""What remains of a target that stands for all that is marked: "lesions" of "marked lesions", nothing of "what is marked"."""
_BOXES = re.compile(
    r"[,;]?\s*(?:\b(?:with|by|in|as|using|draw(?:ing)?|mit|als|avec|par|con|por|en|und|and|et|y)\s+(?:an?\s+"
    r"|the\s+|einem?\s+|des\s+|une\s+|una\s+|"
    r"tight\s+|bounding\s+)*)?(?:bounding[- ]?box(?:es)?|\bbbox(?:es)?|\bbox(?:es|en)?\b|\bkästen\b"
    r"|begrenzungsrahmen|boîtes?(?:\s+englobantes?)?|"
    r"cajas?(?:\s+delimitadoras?)?|边界框|检测框|方框|用框)(?:\s+(?:around|um|autour de|alrededor de)\s+(?:them|each|it)\b)?",
    re.IGNORECASE,
)
_MASKS = re.compile(r"\b(?:pixel[- ]?wise\s+)?masks?\b|\bmasken?\b|\bmasques?\b|\bmáscaras?\b|掩码|掩膜", re.IGNORECASE)
_POINTS = re.compile(
    r"\b(?:landmarks?|key[- ]?points?|landmarken?|points? de repère|puntos? de referencia)\b|关键点|标志点",
    re.IGNORECASE,
)
_NETWORKS = (
    r"(?:3d\s+|2d\s+)?(?:wide)?resne(?:x)?t[- ]?\d*|nn[- ]?u[- ]?net|(?:attention\s+)?u[- ]?net\+{0,2}"
    r"|vgg[- ]?\d*|densenet[- ]?\d*|efficientnet(?:v2)?[- ]?\w{0,2}|"
    r"vision transformers?|transformers?|\bvit\b(?:[- ]\w+)?|swin(?:[- ]\w+)?|yolo[- ]?v?\d*\w?|(?:mask"
    r"|faster) r-?cnn|retinanet|mobilenet\w*|convnext\w*|"
    r"inception\w*|alexnet|\bcnns?\b|convolutional (?:neural )?networks?|neural networks?|neuronale[sn]? netze?s?"
    r"|réseaux? de neurones|redes? neuronal(?:es)?|"
    r"deep learning|machine learning|random forests?|\bsvms?\b|xgboost|medsam|segment anything|神经网络|深度学习|卷积网络"
)
_SUPERFLUOUS = re.compile(
    r"[,;]?\s*\b(?:(?:with|using|via|by|use|train(?:ed|ing)?|fine-?tun(?:e|ing)|based on|mit(?:hilfe)?|mittels"
    r"|nutze|avec|à l'aide d['e]|en utilisant|"
    r"con|usando|mediante)\s+)?(?:an?\s+|the\s+|einem?r?\s+|une?\s+|des\s+|las?\s+|el\s+)*(?:pretrained\s+"
    r"|pre-trained\s+|deep\s+)?"
    rf"(?:(?:{_NETWORKS})(?:\s+(?:model|architecture|backbone|network|modell))?\b"
    r"|(?:pytorch|tensorflow|keras|monai|fastai|jax)\b"
    r"|(?:learning rate|lr|batch size|lernrate|batchgröße|taux d'apprentissage|tasa de aprendizaje)\s*(?:of|=|von"
    r"|de)?\s*[\d.e-]+"
    r"|(?:adamw?|sgd)\s*(?:optimi[sz]er)?\b|(?:data\s+)?augmentations?\b|cross[- ]?validation|kreuzvalidierung"
    r"|\d+[- ]fold\b)"
    r"|[,;]?\s*\b(?:and\s+)?(?:train(?:ed|ing)?\s+|trainiere\s+)?(?:for|in|within|über|für|pendant|durante"
    r"|max(?:imum|imal)?|at most|höchstens)\s+(?:about\s+|at most\s+)?\d+\s*"
    r"(?:epochs?|epochen|époques|épocas|iterations|steps|minutes?|minuten|min|hours?|stunden|heures?|horas?"
    r"|minutos)\b"
    r"|[,;]?\s*\b(?:on|mit|auf|sur|en)\s+(?:a\s+|an\s+|the\s+|my\s+|\d+\s+)*(?:nvidia\s+)?(?:gpus?|rtx\s*\d+|a100"
    r"|h100)\b"
    r"|[,;]?\s*(?:and\s+)?(?:with|reach(?:ing)?|achiev\w+|mit)\s+(?:an?\s+|einem?r?\s+)?(?:auc|auroc|accuracy"
    r"|dice|sensitivity|f1|map|genauigkeit)\s*(?:score)?\s*"
    r"(?:of|above|over|>=?|von|über)?\s*(?:at least\s+|mindestens\s+)?[\d.,]+\s*%?"
    r"|[,，]?训练\s*\d+\s*(?:轮|个?epoch)|使用\s*(?:resnet|u-?net|yolo)\S{0,8}",
    re.IGNORECASE,
)
_PREAMBLE = re.compile(
    r"^\s*(?:(?:please|bitte|s'il vous plaît|s'il te plaît|por favor|请|帮我|hi|hello|hallo|bonjour|hola)[,!\s]*)*"
    r"(?:(?:can|could|would) you (?:please )?|i(?:'d| would)? (?:want|need|like)(?: to)?|we (?:want|need"
    r"|would like)(?: to)?|"
    r"ich (?:möchte|brauche|will|hätte gern)|wir (?:möchten|brauchen|wollen)|je (?:veux|voudrais)"
    r"|j'ai besoin d['e]|nous (?:voulons|voudrions)|"
    r"(?:quiero|necesito|queremos|necesitamos)|我(?:想|要|需要)|我们(?:想|要|需要))?\s*"
    r"(?:(?:to\s+)?(?:train|build|make|create|develop|give me|trainiere|baue|erstelle|entwickle|entraîne[rz]?"
    r"|construi\w+|crée[rz]?|entrena\w*|"
    r"construy?\w+|crea\w*|训练|构建|建立)?\s*(?:me\s+)?(?:an?|the|einen?|ein|une?|un|una|el|一个|一种)\s*(?:[\w-]+\s+){0,3}?"
    r"(?:model|network|classifier|detector|segmenter|system|tool|algorithm|ai|modell|netz|klassifikator|modèle"
    r"|réseau|classifieur|modelo|red|"
    r"clasificador|模型)(?![a-zäöüß])[\s,]*(?:that|which|to|for|zu[rm]?|das|die|der|um|für|pour|qui|que|para|来"
    r"|用于)?\s*)?(?:can\s+|will\s+|should\s+)?",
    re.IGNORECASE,
)
_SECOND_VERBS = "|".join(_VERBS[verb] for verb in ("classify", "count", "grade", "segment", "predict", "detect"))
_VERB_PATTERNS = {
    verb: re.compile(rf"(?<![^\W\u3400-\u9fff])(?:{pattern})", re.IGNORECASE) for verb, pattern in _VERBS.items()
}
TASK_VERBS = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in _VERB_PATTERNS.values()), re.IGNORECASE)
"""Any verb of a task."""
_EXPLANATION = re.compile(rf"(?<=\w):\s+(?=(?:{_VERBS['classify']})\s)", re.IGNORECASE)
"""A colon after which a sentence says what is meant: "Find ill knees: tell arthritis from normal"."""
_JOINT_VERB = re.compile(
    rf"\s*(?:and|und|et|y|or|/|,|并|和)\s*((?:{'|'.join(_VERBS.values())}"
    r"|label(?:s|ling|ing)?\b|number(?:s|ing)?\b|benenn\w*|beschrift\w*|nummerier\w*|étiquet\w*|numérot\w*|etiquet\w*|numer\w*))(?!\w)",
    re.IGNORECASE,
)
_WHETHER = re.compile(r"\bob\b|\bwhether\b|\bif\b|\bsi\b|是否", re.IGNORECASE)
_SECOND_HALF = re.compile(
    rf"(?:[,;]?\s*(?:\band\b|\bund\b|\bet\b|\by\b|并且?|以及|然后)|[,;])\s*(?:also\s+|then\s+|dann\s+|ensuite\s+|luego\s+)?"
    rf"((?:{_SECOND_VERBS}|name|nenne\w*|give|gib)\s*"
    r"(?:[^.;]*?\b(?:their|its|it|them|each|deren|dessen|ihre\w*|seine\w*|sie|leurs?|ses|les|sus?|los|las|cada)\b"
    r"(?:\s+(?!(?:in|on|from|auf|im|aus|sur|dans|en|sobre)\b)[^\W\d_]+){0,3}|(?:其|它们的?|每)[^。；]*))",
    re.IGNORECASE,
)
_SECOND_TASK = re.compile(
    r"[,;]?\s*\b(?:and|und|et|y)\s+(?:also\s+|then\s+)?((?:segment|outline|delineate|predict|estimate|detect"
    r"|classify|segmentiere|schätze"
    r"|klassifiziere|erkenne|segmenter|prédire|estimer|détecter|classer|segmentar|predecir|estimar|detectar"
    r"|clasificar)\s+"
    r"(?:(?!\b(?:on|in|from|auf|aus|im|sur|dans|en)\b)[^\W\d_]+\s*){1,5})",
    re.IGNORECASE,
)
"""A second task with an object of its own: "segment the tumor and predict survival"."""
_COVARIATE = r"(?:age|sex|gender|weight|height|bmi|alter|geschlecht|gewicht|âge|sexe|poids|edad|sexo|peso|年龄|性别)"
_COVARIATES = re.compile(
    r"[,;]?\s*\b(?:using|given|including|together with|along with|in addition to|plus|with|and"
    r"|unter verwendung von|zusammen mit|mit"
    r"|en utilisant|avec|usando|con|junto con|结合)\s+((?:(?:the|patient'?s?|das|dem|l'|la|el|und|and|et|y|,)\s*)*"
    rf"{_COVARIATE}(?:\s*(?:,|and|und|et|y|和)\s*{_COVARIATE})*)\b",
    re.IGNORECASE,
)
_LISTED_COVARIATES = re.compile(
    rf"(?:\s*(?:,|\band\b|\bund\b|\bet\b|\by\b|和)\s*{_COVARIATE})+\s*[.!]?$", re.IGNORECASE
)
_ACQUISITION = re.compile(
    r"[,;]?\s*\b(?:with(?:out)?|no|ohne|mit|sans|avec|sin|con)\s+(?:i\.?\s?v\.?\s+)?"
    r"(?:contrast(?:\s+(?:agent|medium|enhancement))?|kontrast(?:mittel)?|(?:produit\s+de\s+)?contraste"
    r"|medio\s+de\s+contraste)(?!\w)"
    r"|[,;]?\s*\b(?:us(?:ing|e)|with|from|(?:unter\s+)?verwend\w+|mit|aus|anhand|en\s+utilisant|avec|usando|con|on|auf|sur"
    r"|en)\s+(?:(?:all(?:en?|er)?|both|two|beiden?r?|zwei|tou(?:te)?s|deux|tod[oa]s|amb[oa]s|dos|of|the|der|les|l[oa]s)\s+)+"
    r"(?:[^\W\d_]+\s+|\d\s+)?"
    r"(?:stains?|channels?|sequences?|modalities|views|projections|färbungen|kanälen?|sequenzen|modalitäten|ansichten"
    r"|projektionen|colorations|canaux|séquences|modalités|vues|incidences|tinciones|canales|secuencias|modalidades|vistas"
    r"|proyecciones)(?!\w)(?:\s+(?:together|zusammen|ensemble|junt[oa]s)\b)?"
    r"|\b(?:non-?\s?contrast|(?:contrast|gadolinium)[- ]enhanced|unenhanced|portal[- ]venous"
    r"|kontrast(?:mittel)?verstärkte[mnrs]?)(?!\w)",
    re.IGNORECASE,
)
"""How images were made, which is no target."""
_BESIDES = re.compile(
    r"[,;]?\s*\b(?:together with|along with|as well as|in addition to|zusammen mit|mitsamt"
    r"|ainsi que|junto con|así como)\s+",
    re.IGNORECASE,
)
_ETC = r"(?:the (?:like|others)|so (?:on|forth)|more|dergleichen|die anderen|(?:les|d')\s*autres|(?:los|las)\s+demás)"
_EXAMPLES_INTRO = (
    r"such as|e\.\s?g\.|for (?:example|instance)|including|wie (?:etwa|z\.\s?B\.|zum Beispiel)|z\.\s?B\.|zum Beispiel"
    r"|tel(?:le)?s? que|par exemple|p\.\s?ex\.|tales como|por ejemplo|例如|比如"
)
_SAME_OBJECT = re.compile(r"\w+\s+(?:them|it|each(?: of them)?|sie|ihn|es|les|los|las|该|它们?)", re.IGNORECASE)
"""A second verb for the object that was named before."""
_NOT_WANTED = re.compile(
    r"[,;]\s*(?:(?:but|aber|mais|pero)\s+)?(?:no|not|kein\w*|pas de|aucune?|sin)\s[^.;]*?"
    r"(?:wanted|needed|required|necessary|nötig|notwendig|gewünscht|erforderlich|nécessaires?|souhaitée?s?|necesari[oa]s?)\b"
    r"|[,;，；]?不需要[^。；]*",
    re.IGNORECASE,
)
"""A clause that says what shall not be done."""
_DISTINCTION = re.compile(
    r"\b(?:distinguish|tell|differentiat|separat|discriminat|unterscheid|trenn|disting|différenci|diferenci"
    r"|sépar)\w*|区分|鉴别|分辨|辨别",
    re.IGNORECASE,
)
_SEARCH = re.compile(
    r"\b(?:find|locat|locali[sz]|spot|mark|trouv|repér|encontr|encuentr|localiz|lokalis|markier)|定位|寻找|找出|标出",
    re.IGNORECASE,
)
_DETECTION_NOUN = re.compile(r"detection|erkennung|detektion|détection|detección|检测", re.IGNORECASE)
_QUESTION = re.compile(
    r"^\s*(?:is|are|does|do|has|have|which|what|ist|sind|hat|gibt es|liegt|welche\w*|est-ce|y a-t-il|quel\w*|hay"
    r"|es|tiene|qué|cuál)\b|是否|有没有|哪",
    re.IGNORECASE,
)
_NUMBER_WORD_LIST = """
two zwei deux dos 两 二|three drei trois tres 三|four vier quatre cuatro 四|five fünf cinq cinco 五|six sechs seis 六
seven sieben sept siete 七|eight acht huit ocho 八|nine neun neuf nueve 九|ten zehn dix diez 十|eleven elf onze once
twelve zwölf douze doce
thirteen dreizehn treize trece
fourteen vierzehn quatorze catorce
fifteen fünfzehn quinze quince
"""
_NUMBER_WORDS = {
    word: number
    for number, words in enumerate(re.split(r"[|\n]", _NUMBER_WORD_LIST.strip()), 2)
    for word in words.split()
}
_ORIGINS = re.compile(
    r"\b(?:à partir (?:de la|de l'|du|des|de|d')|a partir (?:del|de la|de)|based on|basierend auf|mit ?hilfe von"
    r"|anhand von|anhand der)(?!\w)",
    re.IGNORECASE,
)
_FILLED_PHRASES = re.compile(r"\b(?:y a-t-il|est-ce qu'il y a|il y a|are there|gibt es)\b", re.IGNORECASE)
_NUMBER = "|".join(sorted(_NUMBER_WORDS, key=len, reverse=True))
_EXAMPLES = re.compile(
    rf"(?:[:,(]\s*(?:(?P<count>\d+|{_NUMBER})\s+)?(?:[^\W\d_]+\s+){{1,2}})?[,(]?\s*(?<!\w)(?:{_EXAMPLES_INTRO})(?!\w)"
    r"[^.;:()]*?(?=\s+(?:on|in|from|auf|im|aus|sur|dans|en)\s|[.;:)]|$)\)?"
    rf"|[:(][^:().;]*?(?:,|\band\b|\bund\b|\bet\b|\by\b)\s*(?:{_ETC}|etc|usw)\b\.?\)?"
    rf"|,?\s*(?:(?:\band\b|\bund\b|\bet\b|\by\b)\s+{_ETC}|\betc\b\.?|\busw\b\.?|等)"
    r"(?=\s*(?:[.,;)]|$|\b(?:on|in|from|auf|im|aus|sur|dans|en)\b))",
    re.IGNORECASE,
)
"""A list of examples with what introduces it, or the end of such a list."""
_N_CLASSES = re.compile(
    rf"(?<![\w-])(?<!\bto )(?<!\band )(\d+|{_NUMBER})[\s-]*个?(?:[^\W\d_]+\s+){{0,2}}?"
    r"(?:class(?:es)?|labels?|étiquettes|etiquetas|标签|categor(?:y|ies)|(?:sub)?types?|kinds?|grades?|stages?|klassen?|kategorien?|typen|arten"
    r"|grade|stadien|classes?|catégories|stades|clases|categorías|tipos|grados|分?类别?|种|级)(?!\w)",
    re.IGNORECASE,
)
_GRADE_RANGE = re.compile(
    r"(?:\b(?:from|von|de|desde)\s+)?\b(?:grades?\s+|kl\s*)?(\d)\s*(?:\([^)]*\)\s*)?(?:-|–|to|bis|à|a|hasta"
    r"|through|到|至)\s*(?:grade\s+|kl\s*)?(\d)\b(?:\s*\([^)]*\))?",
    re.IGNORECASE,
)
_UNIT = re.compile(
    r"[,(]?\s*(?:\b(?:in|en)|\(|按)\s*(years|months|weeks|days|jahren?|monaten?|tagen?|ans|années|mois|jours|años"
    r"|meses|días|mm|cm|ml|mg/dl|g/cm[2²3³]|[a-zµ%]{1,5}/[a-z]{1,3}[2²3³]?|"
    r"percent|prozent|%|kg|hu|mmhg|degrees?|grad|degrés|grados)(?!\w)\)?",
    re.IGNORECASE,
)
_3D = re.compile(
    r"\b3[- ]?d\b|\bvolum(?:es|ina|etri\w*)\b|\bvolúmenes\b|(?:CT|MRI?|MRT|IRM|TC|RM|image|scan)[- ]volum\w*"
    r"|three-dimensional|dreidimensional|tridimension\w*|三维|立体",
    re.IGNORECASE,
)
_2D = re.compile(
    r"\b2[- ]?d\b|\bslices?\b|\bschicht\w*|\bcoupes?\b|\bcortes?\b|\btiles?\b|\bpatches\b|二维|切片|层面", re.IGNORECASE
)
_PREPOSITION_LIST = """
on in from using with at within through across auf in im aus von vom bei anhand mit mittels sur dans à depuis
avec chez en sobre desde con de del du des
"""
_PREPOSITIONS = frozenset(_PREPOSITION_LIST.split())
_WEAK_PREPOSITIONS = frozenset({"with", "mit", "avec", "con", "de", "del", "du", "des", "von", "vom", "from", "at"})
"""Prepositions that also stand between classes or before attributes: the phrase after them is the source only if it names images."""
_OF = frozenset(
    {"of", "der", "des", "du", "de", "del", "la", "the", "die", "das", "den", "dem", "el", "los", "las", "les", "l"}
)
_LEADING = re.compile(
    r"^\s*(?:(?:apart|the|a|an|all|any|every|each|some|visible|whether|if|that|there|is|are|was|were|has|have|presence|absence"
    r"|me|out|who|them|it|he|she|they|this|these|those|should|must|can|could|will|would|to|needs?|mir|uns|es|sie"
    r"|moi|nous|faut|doit|doivent|peut|être|que|está|están|debe|puede|ser"
    r"|signs?|evidence|cases?|patients?|images?|scans?|"
    r"of|with|for|as|by|between|be|given|as being|types?|kinds?|subtypes?"
    r"|der|die|das|den|dem|ein|eine|einen|soll(?:en|te)?|muss|kann|alle"
    r"|jede\w*|ob|zwischen|ist|liegt|vorliegt|le|la|les|"
    r"l'|un|une|des|du|de|si|entre|tous|toutes|el|los|las|una|unos|todos|todas|si|hay|entre|是否|所有|有|存在"
    r"|the following|following)\b\s*|l'|s'(?=ils?\b|elles?\b)(?:ils?|elles?)\b\s*|c'est\b\s*)+",
    re.IGNORECASE,
)
_TRAILING = re.compile(
    r"\s*\b(?:stud(?:y|ies)|exams?|examinations?|untersuchungen|examens|estudios"
    r"|apart|(?:(?:is|are)\s+)?to be|or not|or none|is present|are present|present|are|is|was|were|sind|son|sont|hay|was given"
    r"|werden|geworden|muss|müssen|soll|sollte|kann|wird|necessary|nötig|notwendig|erforderlich|nécessaires?|necesari[oa]s?"
    r"|voneinander|voraus|vorher|vor|vorliegt|stellt|ist|ein|correctly|automatically|here|it)\s*$|[\s.:?!。？！]+$",
    re.IGNORECASE,
)
_REFERENCE = re.compile(
    r"\b(?:according to|as in|like(?: in)?|by|nach|gemäß|laut|(?:so\s+)?wie in|selon|d'après|comme dans|según|como en)\s+"
    r"(?:(?:the|my|our|this|last|first|der|die|dem|den|das|letzten|unserer|la|le|les|el|mi|nuestra)\s+)*"
    r"(?:tables?|columns?|spreadsheets?|(?:sub-?)?folders?|lists?|sheets?|labels?|Tabellen?|Spalten?|Ordnern?|Listen?|tableaux?"
    r"|colonnes?|dossiers?|tablas?|columnas?|carpetas?|listas?)\b",
    re.IGNORECASE,
)
"""A phrase that says where the targets are, and not what they are called."""
_SUBJECT = re.compile(
    r"^(?:[^\W\d_]+[\s-]+){1,4}?(?:is|are|ist|sind|est|sont|está|son)\s+(?:(?:more|rather|eher|plutôt|más)\s+)?(?=\w)|^[\u3400-\u9fff]{1,8}?是(?!否)",
    re.IGNORECASE,
)
"""What classes are said of: "the nodule is" benign or malignant."""
_CLAUSE = re.compile(
    r"\b(?:is|are|was|were|has|have|had|should|must|can|could|will|would|needs?|i|we|you|it|they|who|what|which"
    r"|ist|sind|hat|haben|wird|muss|soll|kann|est|sont|doit|peut|faut|está|están|tiene|debe|puede|hay)\b|是否|需要",
    re.IGNORECASE,
)
"""Words of sentences that no name of a class has."""
_CODES = re.compile(r"\s*[A-Z]\d?(?:\s*[,;/]\s*[A-Z]\d?){2,}\s*")
"""A list of three or more codes, such as headings of columns: "N, D, G"."""
_LIST_SEPARATORS = (
    r",|;|、|，|\band\b|\bor\b|\bund\b|\boder\b|\bsowie\b|\bet\b|\bou\b|\by\b|\bo\b|\be\b(?=\s+i)|和|与|及|或|还是|跟"
)
_OPPOSITION = r"|\bvs\.?(?=\s)|\bversus\b|\bagainst\b|\bgegen\b|\bcontre\b|\bfrente a\b"
_CONTRAST = r"|\bfrom\b|\bvon\b|\bde\b|\bdu\b|\bdes\b|\bd'|\bdel\b|/"
_HAN_PARTICLES = re.compile("[已的有哪些个了在上中和与是否其]+")
_ADJECTIVE_LIST = """
left right red white upper lower anterior posterior inner outer small large linke rechte rote weiße gauche
droit droite rouge blanc izquierdo derecho
"""
_ADJECTIVES = frozenset(_ADJECTIVE_LIST.split())
_DICOM_MODALITIES = {
    "ct": "computed tomography",
    "mr": "magnetic resonance imaging",
    "cr": "radiography",
    "dx": "radiography",
    "rg": "radiography",
    "mg": "mammography",
    "us": "ultrasound",
    "ivus": "intravascular ultrasound",
    "pt": "positron emission tomography",
    "nm": "scintigraphy",
    "op": "fundus photography",
    "opt": "optical coherence tomography",
    "sm": "whole slide image",
    "es": "endoscopy",
    "xc": "photography",
    "gm": "microscopy",
    "xa": "angiography",
    "rf": "fluoroscopy",
    "px": "panoramic radiograph",
    "io": "radiography",
}
"""Code of a DICOM header -> modality."""
_GREY_MODALITIES = frozenset(
    {
        "computed tomography",
        "magnetic resonance imaging",
        "radiography",
        "optical coherence tomography",
        "positron emission tomography",
        "mammography",
    }
)
_FLAT_MODALITIES = frozenset({"radiography", "photography", "histology", "cytology", "smear"})
_DEEP_MODALITIES = frozenset({"digital breast tomosynthesis", "fluoroscopy", "angiography"})
"""Modalities below flat ones that give stacks or clips."""
CONCRETE_KINDS = frozenset({"anatomy", "findings", "cells_tissues", "devices"})
_OBJECTS_OF_MASKS = re.compile(
    r"(?:[^\W\d_]+[- ]){1,3}(?:masks?|segmentations?)\b|\b(?:masks?|segmentations?) of (?:the |a )?(?:[^\W\d_]+(?:[- ]|\b)){1,3}",
    re.IGNORECASE,
)
"""What masks show: "lung masks", "masks of the left lung"."""
_FIXED_PAIR = re.compile(
    r"\b(head|Kopf|tête|cabeza|ear|nose)\s+(?:and|und|et|y)\s+(neck|Hals|cou|cuello|nose|throat)\b", re.IGNORECASE
)
"""Two words for one region, which are no two targets."""
_HOMOGRAPHS = frozenset({"rate", "main", "os", "col", "sein", "stein", "pie"})
"""Terms of one language that are common words of another: by themselves they say nothing of a folder."""
_CODES_IN_PROSE = ("ct", "mr")
"""Codes of modalities that are no abbreviations of findings, as `HE` is of hemorrhages."""
_BY_EYE = re.compile(r"\b(?:by|naked|with the) eyes?\b|\bbloße[mns]? Auge\b|\bà l'œil\b", re.IGNORECASE)
"""Idioms that name no organ."""
_DRAWN = re.compile(
    r"\b(?:drawn|outlined|segmented|delineated|contoured|gezeichnet|segmentiert|umfahren|dessiné|délimité|contouré|dibujad|delinead)"
    r"|勾画|标注",
    re.IGNORECASE,
)
_CLINICAL_KINDS = CONCRETE_KINDS | {"measures"}
_SIGNS = frozenset({"opacity", "ground-glass opacity", "consolidation", "infiltration", "nodule", "mass"})
"""Findings that are signs of many diseases, so that a class of their name contradicts none."""
_CARRIERS = frozenset({"microscope slide", "plate", "needle"})
"""Devices that hold or took what an image shows (`slides`, `plate_01`, `needle biopsies`): names with them contradict nothing."""
_GENERIC_FINDINGS = frozenset({"disease", "finding", "abnormality", "lesion", "diagnosis"})
_SUBJECT_WORDS = frozenset(
    {"adversarial", "animal", "augmented", "date", "hospital", "preprocessed", "scanner", "sex", "synthetic"}
)
"""Words about data that are a target if a request names them."""


@dataclass(frozen=True)
class RequestClaims:
    """What a request asks for, and what it says of the data.

    Args:
        tasks: tasks that its words may mean, the likeliest first; empty if no word says it.
        targets: what is to be found, told or measured, as phrases of the request.
        classes: the classes that it lists, if it lists several.
        negatives: those of them that mean that nothing was found.
        n_classes: how many classes it speaks of.
        grade_range: lowest and highest grade.
        modalities, anatomies: concepts of the term list.
        covariates: what the model shall be given beside the image.
        second_half: a further wish ("... and tell their type"), which one task may not serve.
        superfluous: words about the training (epochs, networks, hardware), which the target is not.
        wants_all: whether every finding that is labelled is wanted.
        is_distinction: whether one class is to be told from the others, so that each case has one.
    """

    text: str
    tasks: tuple[TaskHint, ...] = ()
    form: AnswerForm = ""
    targets: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    n_classes: int | None = None
    grade_range: tuple[int, int] | None = None
    modalities: tuple[str, ...] = ()
    anatomies: tuple[str, ...] = ()
    dimension: Dimension = ""
    unit: str = ""
    covariates: tuple[str, ...] = ()
    second_half: str = ""
    superfluous: tuple[str, ...] = ()
    wants_all: bool = False
    is_distinction: bool = False


@dataclass(frozen=True)
class FolderWords:
    """What the words, headers and pixels of a folder say.

    Args:
        folders: names of folders and titles of the data set, which say what the whole is about.
        names: names of files and columns.
        classes: names of classes: of annotations, values of label columns, class folders, legends.
        notes: texts of notes and READMEs.
        header_modalities: codes of DICOM headers (`CT`, `MR`).
        dimension: of the images.
        is_colour: whether the pictures have colours that differ; None if unknown.
        legend: code -> name.
    """

    folders: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    notes: str = ""
    header_modalities: tuple[str, ...] = ()
    dimension: Dimension = ""
    is_colour: bool | None = None
    legend: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """One claim of a request against the folder.

    Args:
        asked: what the request says.
        evidence: what the folder says, and where (`names`, `classes`, `notes`, `header`, `pixels`); empty if it is silent.
    """

    kind: ClaimKind
    asked: str
    evidence: str
    verdict: Verdict


def parse_request(text: str, lexicon: Lexicon | None = None) -> RequestClaims:
    """Return what a request in English, German, French, Spanish or Chinese asks for."""
    lexicon = lexicon or get_lexicon()
    remaining = re.sub(r"\s+", " ", _FILLED_PHRASES.sub(" ", _ORIGINS.sub(" from ", text.strip()[:_MAX_REQUEST])))
    remaining = _ACQUISITION.sub(" ", _REFERENCE.sub(" ", _NOT_WANTED.sub(" ", remaining)))
    remaining = _FIXED_PAIR.sub(r"\1-\2", remaining)
    if match := _EXPLANATION.search(remaining):
        remaining = remaining[match.end() :]
    superfluous = tuple(match[0].strip(" ,;") for match in _SUPERFLUOUS.finditer(remaining))
    remaining = _SUPERFLUOUS.sub(" ", remaining)
    covariates: tuple[str, ...] = ()
    trailing, attached = _LISTED_COVARIATES.search(remaining), _COVARIATES.search(remaining)
    is_listed = trailing is not None and _names_images(lexicon, remaining[: trailing.start()])
    matches = [match for match, is_valid in ((attached, True), (trailing, is_listed)) if match and is_valid]
    if matches:
        first = min(matches, key=lambda candidate: candidate.start())
        covariates = tuple(lexicon.find_concepts(first[0]))
        remaining = remaining[: first.start()] + remaining[first.end() :]
    remaining = _BESIDES.sub(", ", remaining)
    named_count: int | None = None
    has_examples = False
    while example := _EXAMPLES.search(remaining):
        has_examples = True
        named_count = _to_number(example["count"]) if example["count"] else named_count
        remaining = f"{remaining[: example.start()]} {remaining[example.end() :]}"
    form: AnswerForm = (
        "boxes"
        if _BOXES.search(remaining)
        else "masks"
        if _MASKS.search(remaining)
        else "points"
        if _POINTS.search(remaining)
        else ""
    )
    remaining = _BOXES.sub(" ", remaining)
    second_half = ""
    preamble = _PREAMBLE.match(remaining)
    remaining = _PREAMBLE.sub("", remaining, count=1).strip(" ¿¡") or remaining
    if (match := _SECOND_HALF.search(remaining) or _SECOND_TASK.search(remaining)) and re.search(
        r"\w+\s+\S|[\u3400-\u9fff]{3}", remaining[: match.start()]
    ):
        second_half, remaining = match[1].strip(), f"{remaining[: match.start()]} {remaining[match.end() :]}"
    is_same_object = bool(_SAME_OBJECT.fullmatch(second_half))
    unit = ""
    if match := _UNIT.search(remaining):
        unit, remaining = match[1], remaining[: match.start()] + " " + remaining[match.end() :]
    n_classes = _count_classes(remaining) or named_count
    range_match = _GRADE_RANGE.search(remaining)
    grade_range = (
        (int(range_match[1]), int(range_match[2]))
        if range_match and int(range_match[1]) < int(range_match[2])
        else None
    )
    if range_match and grade_range:
        remaining = remaining[: range_match.start()] + " " + remaining[range_match.end() :]
    verb_match = _find_verb(remaining)
    verb = verb_match.name if verb_match else ""
    is_distinction = verb == "classify" and _DISTINCTION.search(remaining) is not None
    target_text = _cut_source(lexicon, _cut_to_object(remaining, verb_match), is_distinction=is_distinction)
    targets, classes = _list_targets(lexicon, target_text, verb, is_distinction=is_distinction)
    if second_half and _VERB_PATTERNS["segment"].match(second_half) and verb == "detect":
        verb = "segment"
        second_half = "" if is_same_object else second_half
    elif verb_match and verb_match.second in ("segment", "count", "grade"):
        verb = verb_match.second
    elif verb_match and verb_match.second:
        second_half = second_half or remaining[verb_match.start : verb_match.end].split()[-1]
    tasks = _rank_tasks(lexicon, remaining, verb, form, unit, grade_range, classes or targets[:1])
    if not tasks and targets and preamble:
        tasks = _tasks_of_noun(preamble[0])  # "a classifier of tissue types"
    is_open = bool(targets) and not classes and all(map(_is_open_target, targets))
    if tasks[:1] == ("report",) or (is_open and not names_clinical(targets)):
        targets = ()
    if has_examples:
        classes = ()
    folded = set(split_tokens(text))
    text_read = text[:_MAX_REQUEST]
    concepts = lexicon.find_concepts(text_read, ("modalities",))
    return RequestClaims(
        text=text,
        tasks=tasks,
        form="count" if verb == "count" and not form else form,
        targets=targets,
        classes=classes,
        negatives=tuple(name for name in classes if is_negative(name, lexicon)),
        n_classes=n_classes or (grade_range[1] - grade_range[0] + 1 if grade_range else len(classes) or None),
        grade_range=grade_range,
        modalities=tuple(name for name in concepts if name != "video"),
        anatomies=tuple(lexicon.find_concepts(text_read, ("anatomy",))),
        dimension="video" if "video" in concepts else "3d" if _3D.search(text) else "2d" if _2D.search(text) else "",
        unit=unit,
        covariates=covariates,
        second_half=second_half,
        superfluous=superfluous,
        wants_all=is_open
        or has_examples
        or (len(targets) == 1 and not classes and _PARTS.fullmatch(_MARKED.sub(" ", targets[0]).strip()) is not None)
        or bool(folded & {"all", "every", "alle", "tous", "toutes", "todos", "todas", "所有"} and _REPORT.search(text)),
        is_distinction=is_distinction,
    )


def _is_open_target(target: str) -> bool:
    """Return whether a target names no finding, but all that there are, or all that are marked."""
    if _OPEN_TARGET.fullmatch(target):
        return True
    noun = _MARKED.sub(" ", target).strip(" ,")
    return noun != target and (_OPEN_TARGET.fullmatch(noun) or _GENERIC_NOUN.fullmatch(noun)) is not None


def contradictions(claims: RequestClaims, folder: FolderWords, lexicon: Lexicon | None = None) -> list[Claim]:
    """Return for each claim of a request whether the folder supports it, contradicts it, or says nothing of it.

    Names, classes, headers and pixels can contradict; notes only if they never mention what is requested and name another
    thing of the same kind at least twice.
    """
    lexicon = lexicon or get_lexicon()
    verdicts: list[Claim] = []
    modality = _judge_modality(claims, folder, lexicon) if claims.modalities else None
    if modality:
        verdicts.append(modality)
    if claims.anatomies:
        verdicts.append(_judge_anatomy(claims, folder, lexicon))
    if folder.is_colour and any(_get_root(lexicon, name) in _GREY_MODALITIES for name in claims.modalities):
        verdicts.append(
            Claim("colour", ", ".join(claims.modalities), "pixels: the pictures have colours", "contradicted")
        )
    is_confirmed = bool(folder.header_modalities) and modality is not None and modality.verdict == "supported"
    if dimension := _judge_dimension(claims, folder, lexicon, is_confirmed=is_confirmed):
        verdicts.append(dimension)
    if target := _judge_targets(claims, folder, lexicon):
        verdicts.append(target)
    return verdicts


@dataclass(frozen=True)
class _Verb:
    """The verb of a request, its place, and a second one for the same object ("detect and segment")."""

    name: str
    start: int
    end: int
    second: str = ""


def _find_verb(text: str) -> _Verb | None:
    """Return the first verb of a task in a text; of several at one place the one with the longest match."""
    matches = [
        (match.start(), -match.end(), verb)
        for verb, pattern in _VERB_PATTERNS.items()
        if (match := pattern.search(text))
    ]
    if not _REPORT.search(text):
        matches = [item for item in matches if item[2] != "write"]
    if not matches:
        return None
    start, end, name = min(matches)
    if joint := _JOINT_VERB.match(text[-end:]):
        seconds = [verb for verb, pattern in _VERB_PATTERNS.items() if pattern.match(joint[1])]
        return _Verb(name, start, joint.end() - end, seconds[0] if seconds else "")
    if name == "detect" and (_WHETHER.search(text) or _QUESTION.search(text)):
        name = "classify"
    return _Verb(name, start, -end)


def _rank_tasks(
    lexicon: Lexicon,
    text: str,
    verb: str,
    form: AnswerForm,
    unit: str,
    grade_range: tuple[int, int] | None,
    targets: Sequence[str],
) -> tuple[TaskHint, ...]:
    if verb == "write" and _REPORT.search(text):
        return ("report",)
    are_classes = len(targets) > 1
    if _SURVIVAL.search(text) and not are_classes:
        return ("survival",)
    if form == "boxes":
        return ("detection",)
    if verb == "segment" or (form == "masks" and verb in ("detect", "")):
        return ("segmentation",)
    if unit and verb in ("predict", "count", "", "grade"):
        return ("regression",)
    if grade_range:
        return ("grading", "diagnosis")
    if verb == "predict" and (are_classes or any(map(_name_of_type, targets))):
        return ("diagnosis", "grading")
    is_detection = verb == "detect" or (not verb and _DETECTION_NOUN.search(text))
    if is_detection and (any(map(is_negative, targets)) or not _asks_for_many(lexicon, text, targets)):
        return ("diagnosis", "detection", "segmentation")
    if is_detection:
        return _TASKS_OF_VERB["detect"]
    kinds = {
        lexicon.concepts[name].kind
        for target in targets
        for unit in lexicon.find_units(target)
        for name in unit.concepts
    }
    if verb == "predict" and "findings" in kinds and "measures" not in kinds:
        return ("diagnosis", "regression", "grading")
    if not verb and _QUESTION.search(text):
        return ("diagnosis", "detection")
    if verb:
        return _TASKS_OF_VERB[verb]
    return _tasks_of_noun(text)


def _tasks_of_noun(text: str) -> tuple[TaskHint, ...]:
    return next((hint for hint, pattern in _TASK_OF_NOUN.items() if re.search(pattern, fold_text(text))), ())


def _asks_for_many(lexicon: Lexicon, text: str, targets: Sequence[str]) -> bool:
    """Return whether a request to detect wants things to be found in an image, not images that show one: by verb or plural."""
    return _SEARCH.search(text) is not None or any(_is_plural(lexicon, target) for target in targets)


def _is_plural(lexicon: Lexicon, phrase: str) -> bool:
    """Return whether a phrase ends like a plural, and is not the first form of a term of the term list."""
    folded = fold_text(phrase)
    names = [name for unit in lexicon.find_units(phrase) for name in unit.concepts]
    if any(fold_text(terms[0]) == folded for name in names for terms in lexicon.concepts[name].terms.values()):
        return False
    return re.search(r"(?:[^s]s|i|ae|[a-z]en)$", folded) is not None and not folded.endswith(("osis", "itis", "us"))


def _count_classes(text: str) -> int | None:
    match = _N_CLASSES.search(text)
    if match is None:
        return None
    return _to_number(match[1])


def _to_number(text: str) -> int | None:
    folded = text.casefold()
    number = int(folded) if folded.isdigit() else _NUMBER_WORDS[folded]
    return number if 2 <= number <= 1000 else None


def _cut_to_object(text: str, verb: _Verb | None) -> str:
    """Return what follows the verb of a request; without one the request without the nouns of tasks."""
    if verb is None:
        return _TASK_NOUNS.sub(" ", text)
    before, behind = text[: verb.start].strip(" ,;:"), text[verb.end :]
    lexicon = get_lexicon()
    if not _clean_item(lexicon, _cut_source(lexicon, behind, is_distinction=False)) or (
        re.search(r"(?:把|将|对)", before) and _HAN_OBJECT.search(before)
    ):
        object_match = _HAN_OBJECT.search(before)
        return object_match[1] if object_match else before
    is_particle = behind.strip(" .!?").casefold() in ("voraus", "vorher", "ein")
    return before if is_particle else behind


_HAN_OBJECT = re.compile(r"(?:把|将|对)(.+)$")


def _cut_source(lexicon: Lexicon, text: str, *, is_distinction: bool) -> str:
    """Cut the phrases that say what the images are: "on chest X-rays", "in MRT-Aufnahmen des Knies", "在CT上".

    In "tell A from normal chest films" the phrase holds a class too, which stays.
    """
    text = re.sub(
        r"(?:在|从|根据|基于|利用|通过|对)?([^,，。;；]*?)(?:上的?|中的?|里的?|图像的|影像的|的|(?=是否))(?=.)",
        lambda m: "" if _names_images(lexicon, m[1]) else m[0],
        text,
    )
    words = list(re.finditer(r"[^\W_]+(?:[-'’/.][^\W_]+)*|[,;:.()?!]", text))
    spans: list[tuple[int, int]] = []
    place = 0
    while place < len(words):
        word = words[place][0].casefold()
        if word not in _PREPOSITIONS:
            place += 1
            continue
        end = place + 1
        last_image = -1
        while end < len(words) and words[end][0] not in ",;:.()?!" and end - place <= 9:
            following = words[end][0].casefold()
            if following in _PREPOSITIONS and following not in _OF:
                break
            if following in ("from", "vs", "versus", "whether"):
                break
            if _names_images(lexicon, text[words[place + 1].start() : words[end].end()]) and _is_image_word(
                lexicon, words, place + 1, end, text
            ):
                last_image = end
            end += 1
        if last_image >= 0:
            stop = last_image + 1
            while stop < end:
                pair_end = words[min(stop + 1, end - 1)].end()
                if _names_body(lexicon, text[words[stop].start() : pair_end]) and stop + 1 < end:
                    stop += 2
                elif words[stop][0].casefold() not in _AFTER_SOURCES and _continues_source(lexicon, words[stop][0]):
                    stop += 1
                else:
                    break
            start = place
            if is_distinction and word in _WEAK_PREPOSITIONS:
                start = next(
                    index for index in range(place + 1, stop)
                    if _names_images(lexicon, words[index][0]) or _names_body(lexicon, words[index][0])
                    or index == last_image
                )  # fmt: skip
            spans.append((words[start].start(), words[stop - 1].end()))
            place = stop
        else:
            place += 1
    for start, end in reversed(spans):
        text = text[:start] + " " + text[end:]
    return text


_AFTER_SOURCES = frozenset(
    {"as", "into", "als", "comme", "como", "soll", "sollen", "sollte", "should", "must", "shall", "muss"}
)
"""Words after images that introduce classes, or what is to be done."""


def _continues_source(lexicon: Lexicon, word: str) -> bool:
    """Return whether a word after images still describes them: a body part, or a word that is no thing of the term list."""
    if word.casefold() in _OF or _names_body(lexicon, word):
        return True
    is_joint = re.fullmatch(_LIST_SEPARATORS + r"|apart|or", word, re.IGNORECASE) is not None
    return not is_joint and not any(unit.concepts for unit in lexicon.find_units(word)) and word.isalpha()


def _is_image_word(lexicon: Lexicon, words: Sequence[re.Match[str]], start: int, end: int, text: str) -> bool:
    """Return whether the words up to `end` name images that those before it did not: the word itself is one of images."""
    if start == end:
        return True
    units = lexicon.find_units(text[words[start].start() : words[end].end()])
    is_last = bool(units) and split_tokens(words[end][0])[-1:] == list(units[-1].words[-1:])
    if is_last and _is_image_unit(lexicon, units[-1]):  # "fotografía de fondo de ojo"
        return True
    return _names_images(lexicon, words[end][0]) or not _names_images(
        lexicon, text[words[start].start() : words[end - 1].end()]
    )


_IMAGE_CONCEPTS = frozenset({"image", "microscope slide", "slice", "volume", "patch", "preview", "video"})


def _names_images(lexicon: Lexicon, phrase: str) -> bool:
    units = lexicon.find_units(phrase)
    return any(
        name in _IMAGE_CONCEPTS or lexicon.concepts[name].kind == "modalities"
        for unit in units
        for name in unit.concepts
    )


def _names_body(lexicon: Lexicon, word: str) -> bool:
    return any(lexicon.concepts[name].kind == "anatomy" for unit in lexicon.find_units(word) for name in unit.concepts)


def _list_targets(
    lexicon: Lexicon, text: str, verb: str, *, is_distinction: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the phrases of the object of a request, and its classes if it lists several."""
    bracketed = [match[1] for match in re.finditer(r"\(([^)]*)\)", text)]
    text = re.sub(r"\([^)]*\)", " ", text)
    head, _, tail = text.partition(":")
    joints = (
        r"\b(?:into|in(?: die)?|en|as|als|comme|como)\b|分为|分成"
        if verb == "classify" and not is_distinction
        else r"\binto\b|分为|分成"
    )
    into = re.split(joints, text, maxsplit=1, flags=re.IGNORECASE)
    list_text = tail if tail and re.search(_LIST_SEPARATORS, tail) else into[1] if len(into) > 1 else ""
    classes = _split_list(lexicon, list_text, contrast=False) if list_text and not _N_CLASSES.search(list_text) else []
    objects = _split_list(lexicon, head if list_text == tail and tail else into[0], contrast=is_distinction)
    if not classes and len(objects) < 2:
        classes = next(
            (items for items in (_split_list(lexicon, inner, contrast=False) for inner in bracketed) if len(items) > 2),
            [],
        )
    if not classes:
        classes = next((re.findall(r"\w+", inner) for inner in bracketed if _CODES.fullmatch(inner)), [])
    if not classes and len(objects) > 1:
        classes = objects
    return tuple(objects) if objects else tuple(classes), tuple(classes) if len(classes) > 1 else ()


def _split_list(lexicon: Lexicon, text: str, *, contrast: bool) -> list[str]:
    pieces = [
        _clean_item(lexicon, piece)
        for piece in re.split(
            _LIST_SEPARATORS + _OPPOSITION + (_CONTRAST if contrast else ""), text, flags=re.IGNORECASE
        )
    ]
    pieces = [piece for piece in pieces if piece]
    if len(pieces) > 1:
        pieces[0] = _SUBJECT.sub("", pieces[0])
    for place in range(len(pieces) - 2, -1, -1):
        item, following = pieces[place], pieces[place + 1].split()
        if len(item.split()) == 1 and len(following) > 1:
            combined = " ".join([item, *following[1:]])
            units = lexicon.find_units(combined)
            is_one_thing = len(units) == 1 and bool(units[0].concepts)
            if is_one_thing or item.casefold() in _ADJECTIVES:
                pieces[place] = combined
    for place in range(1, len(pieces)):
        words, item = pieces[place - 1].split(), pieces[place]
        if len(words) > 1 and len(item.split()) == 1:
            combined = " ".join([*words[:-1], item])
            units = lexicon.find_units(combined)
            if len(units) == 1 and units[0].concepts and not any(unit.concepts for unit in lexicon.find_units(item)):
                pieces[place] = combined  # the optic disc and cup
    return [piece for piece in pieces if len(piece.split()) <= _MAX_WORDS_OF_CLASS]


def _clean_item(lexicon: Lexicon, text: str) -> str:
    """Return a name of a class without articles and words that name nothing; empty if nothing is left."""
    before = None
    text = text.strip(" \t,;:.?!\"'。？！")
    while before != text:
        before = text
        text = _TRAILING.sub("", _LEADING.sub("", text)).strip(" \t,;:.?!\"'-")
    if re.search(r"[\u3400-\u9fff]", text):
        for unit in lexicon.find_units(text)[:0:-1]:
            if _is_image_unit(lexicon, unit):
                text = text.removesuffix("".join(unit.words))
        text = re.sub(
            r"^(?:病人|患者)?(?:是否|是)(?:需要|应该|能|有|存在)?(?!否)|^(?:的|出(?!血)|是否有?|所有)+", "", text
        )
        text = re.sub(r"(?:的|区域|进行|数量|个数)+$", "", text)
    units = lexicon.find_units(text)
    telling = [unit for unit in units if not _is_filler(lexicon, unit)]
    if not telling or not re.search(r"[^\W\d_]", text):
        return ""
    while units and _is_image_unit(lexicon, units[0]) and len(units) > 1 and " " in text:
        text = _LEADING.sub("", text.split(" ", 1)[1])
        units = lexicon.find_units(text)
    return text


def _is_image_unit(lexicon: Lexicon, unit: Unit) -> bool:
    return bool(unit.concepts) and all(
        name in _IMAGE_CONCEPTS or lexicon.concepts[name].kind == "modalities" for name in unit.concepts
    )


def _is_filler(lexicon: Lexicon, unit: Unit) -> bool:
    """Return whether a unit names no thing: images, classes, or words of sentences."""
    if unit.concepts:
        return _is_image_unit(lexicon, unit) or unit.concepts <= {
            "class",
            "grade",
            "mask",
            "patient",
            "yes",
            "no",
            "count",
            "both",
        }
    return all(
        word in STOP_WORDS or word in _NUMBER_WORDS or word.isdigit() or (len(word) < 2 and word.isascii())
        for word in unit.words
    )


def _judge_modality(claims: RequestClaims, folder: FolderWords, lexicon: Lexicon) -> Claim:
    requested = claims.modalities
    label = ", ".join(requested)
    from_header = {
        _DICOM_MODALITIES[code.casefold()] for code in folder.header_modalities if code.casefold() in _DICOM_MODALITIES
    }
    if from_header:
        is_supported = any(_are_compatible(lexicon, first, second) for first in requested for second in from_header)
        return Claim(
            "modality",
            label,
            f"header: {', '.join(sorted(from_header))}",
            "supported" if is_supported else "contradicted",
        )
    return _judge_concepts("modality", requested, folder, lexicon, "modalities")


def select_modalities(claims: RequestClaims, codes: Iterable[str]) -> tuple[str, ...]:
    """Return the codes of DICOM headers that are of a modality of the request."""
    lexicon = get_lexicon()
    return tuple(
        code
        for code in codes
        if (name := _DICOM_MODALITIES.get(code.casefold(), ""))
        and any(_are_compatible(lexicon, name, claimed) for claimed in claims.modalities)
    )


def _judge_anatomy(claims: RequestClaims, folder: FolderWords, lexicon: Lexicon) -> Claim:
    return _judge_concepts("anatomy", claims.anatomies, folder, lexicon, "anatomy")


_ANY_PICTURE = frozenset({"photography", "video"})
"""Modalities after which folders of any pictures are called (`photos`, `video01`), so that they contradict none."""


def _judge_concepts(
    kind: ClaimKind, requested: Sequence[str], folder: FolderWords, lexicon: Lexicon, concept_kind: str
) -> Claim:
    """Compare concepts of one kind with those that names, classes and notes mention."""
    label = ", ".join(requested)
    strong: dict[str, str] = {}
    for source, texts in (
        ("folders", folder.folders),
        ("names", folder.names),
        ("classes", (*folder.classes, *folder.legend.values())),
    ):
        for text in texts:
            for name in _find_evidence(lexicon, text, concept_kind):
                strong.setdefault(name, f"{source}: {text}")
    notes = [
        name
        for sentence in re.split(r"[.;\n。]", folder.notes)
        for name in [*lexicon.find_concepts(sentence, (concept_kind,)), *_find_imaged(lexicon, sentence, concept_kind)]
    ]
    for name in (*strong, *notes):
        if any(_are_compatible(lexicon, name, claimed) for claimed in requested):
            return Claim(kind, label, strong.get(name, f"notes: {name}"), "supported")
    for name, source in strong.items():
        if name not in _ANY_PICTURE:
            return Claim(kind, label, f"{source} ({name})", "contradicted")
    described = {
        name
        for line in _BY_EYE.sub(" ", folder.notes).splitlines()
        if _describes_images(lexicon, line)
        for name in [
            *_find_evidence(lexicon, line, concept_kind, _CODES_IN_PROSE),
            *_find_listed(lexicon, line, concept_kind),
        ]
    }
    repeated = [name for name in dict.fromkeys(notes) if notes.count(name) > 1 or name in described]
    if repeated:
        return Claim(kind, label, f"notes: {', '.join(repeated)}", "contradicted")
    return Claim(kind, label, "", "silent")


def _find_imaged(lexicon: Lexicon, text: str, kind: str) -> list[str]:
    """Return the concepts of a kind that the English names of imaging name, as chest radiography does the chest."""
    imaging = [name for name in lexicon.find_concepts(text, ("modalities",)) if kind != "modalities"]
    return [concept for name in imaging for word in name.split() for concept in lexicon.find_concepts(word, (kind,))]


def _find_listed(lexicon: Lexicon, line: str, kind: str) -> list[str]:
    """Return the concepts of words of two languages that stand alone between signs, as no common word does."""
    parts = [part.strip() for part in re.split(r"[,:;()|]", line)]
    return [name for part in parts if part.casefold() in _HOMOGRAPHS for name in lexicon.find_concepts(part, (kind,))]


def _describes_images(lexicon: Lexicon, line: str) -> bool:
    """Return whether a line of notes says what the images are: it names imaging with an organ, or in two words."""
    units = lexicon.find_units(line)
    imaging = {
        unit.words for unit in units if any(lexicon.concepts[name].kind == "modalities" for name in unit.concepts)
    }
    organs = lexicon.find_concepts(line, ("anatomy",)) or _find_imaged(lexicon, line, "anatomy")
    return bool(imaging) and (len(imaging) > 1 or bool(organs))


def _find_evidence(lexicon: Lexicon, text: str, kind: str, codes: Collection[str] = ()) -> list[str]:
    """Return the concepts of a kind that a name means without doubt: short words may mean many things, and are left out.

    Args:
        codes: short words that mean one thing.
    """
    names = []
    for unit in lexicon.find_units(text):
        word = unit.words[0]
        is_short = len(unit.words) == 1 and (
            (word.isascii() and len(word) < 3 and word not in codes) or word in _HOMOGRAPHS
        )
        kinds = {lexicon.concepts[name].kind for name in unit.concepts}
        if not is_short and kinds == {kind}:
            names += sorted(unit.concepts)
        elif not is_short and kinds == {"modalities"}:
            names += _find_imaged(lexicon, " ".join(unit.words), kind)
        elif kind == "anatomy" and kinds & {"findings", "cells_tissues"} and not is_short:
            organs = {wider for name in unit.concepts for wider in lexicon.get_wider(name)}
            organs = {organ for organ in organs if lexicon.concepts[organ].kind == kind}
            names += sorted(organs - {wider for organ in organs for wider in lexicon.get_wider(organ)})
    return names


def _are_compatible(lexicon: Lexicon, first: str, second: str) -> bool:
    """Return whether two concepts are equal, or one is part of the other, or both are sequences of one modality."""
    if first == second or first in lexicon.get_wider(second, 6) or second in lexicon.get_wider(first, 6):
        return True
    return lexicon.concepts[first].kind == "modalities" and _get_root(lexicon, first) == _get_root(lexicon, second)


def _get_root(lexicon: Lexicon, name: str) -> str:
    """Return the widest modality that a modality belongs to."""
    while parents := lexicon.concepts[name].part_of:
        name = parents[0]
    return name


def _judge_dimension(
    claims: RequestClaims, folder: FolderWords, lexicon: Lexicon, *, is_confirmed: bool
) -> Claim | None:
    """Compare the dimension: clips may be stored as pictures, but pictures of a flat modality are no volumes.

    Args:
        is_confirmed: whether headers confirm the modality; its images may have frames, then.
    """
    if not folder.dimension:
        return None
    if claims.dimension in ("2d", "3d"):
        verdict: Verdict = "supported" if claims.dimension == folder.dimension else "contradicted"
        return Claim("dimension", claims.dimension, f"pixels: {folder.dimension}", verdict)
    if folder.dimension == "3d" and not is_confirmed and is_flat(claims.modalities, lexicon):
        return Claim("dimension", f"2d ({', '.join(claims.modalities)})", "pixels: 3d", "contradicted")
    return None


def is_flat(modalities: Sequence[str], lexicon: Lexicon | None = None) -> bool:
    """Return whether modalities give single pictures, and no volumes, stacks or clips."""
    lexicon = lexicon or get_lexicon()
    families = [{name, *lexicon.get_wider(name, 6)} for name in modalities]
    return bool(families) and all(names & _FLAT_MODALITIES and not names & _DEEP_MODALITIES for names in families)


def is_clause(phrase: str) -> bool:
    """Return whether a phrase is part of a sentence ("bone will heal") and no name of a class."""
    return _CLAUSE.search(phrase) is not None


def names_clinical(phrases: Iterable[str]) -> bool:
    """Return whether phrases name a finding, organ, cell, device or measure."""
    return bool(_find_clinical(get_lexicon(), phrases, generic=True))


def _judge_targets(claims: RequestClaims, folder: FolderWords, lexicon: Lexicon) -> Claim | None:
    """Compare targets with the classes of the folder; without names of classes with its other names and notes."""
    if claims.tasks[:1] in (("survival",), ("report",)):
        return None
    is_classified = claims.tasks[:1] in (("diagnosis",), ("grading",))
    requested = [
        phrase
        for phrase in claims.classes or claims.targets
        if any(_is_subject(lexicon, unit, is_classified=is_classified) for unit in lexicon.find_units(phrase))
    ]
    if all(is_negative(phrase, lexicon) for phrase in requested):  # "abnormal from normal" names nothing to be found
        return None
    label = ", ".join(requested)
    kind: ClaimKind = "classes" if claims.classes else "target"
    names = [folder.legend.get(name, name) for name in folder.classes]
    telling = [name for name in names if _is_telling(lexicon, name)]
    assignment = match_classes(requested, telling, folder.legend, folder.notes, lexicon)
    pairs = {name: matches for name, matches in assignment.pairs.items() if matches and name != assignment.remainder}
    if pairs:
        evidence = ", ".join(f"{name} = {'/'.join(matches)}" for name, matches in pairs.items())
        return Claim(kind, label, f"classes: {evidence}", "supported")
    sentences = [sentence for sentence in re.split(r"[.;\n。]", folder.notes) if sentence.strip()]
    if claims.tasks[:1] == ("segmentation",) and (mask_text := _find_other_masks(lexicon, requested, sentences)):
        return Claim(kind, label, f"notes: {mask_text[:80]}", "contradicted")
    positive = [name for name in telling if not is_negative(name, lexicon)] or telling
    concrete = [name for name in positive if _find_clinical(lexicon, [name])]
    if is_classified and not claims.classes and _ATTRIBUTE.search(label):
        concrete = []  # its values are called otherwise than what they are said of
    if concrete and 2 * len(concrete) >= len(positive):
        verdict = _judge_families(lexicon, claims, requested, concrete)
        if verdict != "silent":
            return Claim(kind, label, f"classes: {', '.join(positive[:8])}", verdict)
    for source, texts in (("folders", folder.folders), ("names", folder.names), ("notes", sentences)):
        for text in texts:
            if any(
                _mentions(lexicon, text, phrase)
                for phrase in (*requested, *filter(None, map(_name_of_type, requested)))
            ):
                return Claim(kind, label, f"{source}: {text.strip()[:80]}", "supported")
    for text in (*folder.folders, *folder.names):
        if _is_about_something_else(lexicon, requested, [text]):
            return Claim(kind, label, f"names: {text}", "contradicted")
    if _is_about_something_else(lexicon, requested, sentences, min_mentions=2):
        named = [sentence for sentence in sentences if _is_about_something_else(lexicon, requested, [sentence])]
        evidence = " ".join((named or sentences)[0].split())
        return Claim(kind, label, f"notes: {evidence[:80]}", "contradicted")
    return Claim(kind, label, "", "silent" if _find_clinical(lexicon, requested, generic=True) else "unknown")


def _name_of_type(phrase: str) -> str:
    """Return the name of a type without what has it ("Graf type" of the infant hip); empty if a phrase names none."""
    head = _HAS_TYPE.split(phrase, maxsplit=1)[0]
    name = _ATTRIBUTE.sub(" ", head).strip(" -")
    return name if name != head and head != phrase else ""


def _find_other_masks(lexicon: Lexicon, requested: Sequence[str], sentences: Sequence[str]) -> str:
    """Return the words that say which organ the masks show, if a finding is requested that no sentence about masks names."""
    findings = {name for name in _find_clinical(lexicon, requested) if lexicon.concepts[name].kind == "findings"}
    is_drawn = any(
        findings & _find_clinical(lexicon, [sentence]) or _GENERIC_FINDINGS & set(lexicon.find_concepts(sentence))
        for sentence in sentences
        if _DRAWN.search(sentence)
    )
    objects = [
        (match[0].strip(), _find_clinical(lexicon, [match[0]], generic=True))
        for sentence in sentences
        if _MASKS.search(sentence)
        for match in _OBJECTS_OF_MASKS.finditer(sentence)
    ]
    if not findings or is_drawn or any(concepts & (findings | _GENERIC_FINDINGS) for _, concepts in objects):
        return ""
    organs = [text for text, concepts in objects if {lexicon.concepts[name].kind for name in concepts} == {"anatomy"}]
    return organs[0] if organs else ""


def _is_subject(lexicon: Lexicon, unit: Unit, *, is_classified: bool) -> bool:
    """Return whether a unit of a target can be found in a folder or not; what is classified is seldom the organ itself."""
    if not unit.concepts:
        word = unit.words[0]
        is_particle = len(word) < 2 or _HAN_PARTICLES.fullmatch(word)
        return not (is_particle or _is_filler(lexicon, unit) or _TASK_NOUNS.search(word))
    kinds = {lexicon.concepts[name].kind for name in unit.concepts}
    if "data_words" in kinds:
        return bool(unit.concepts & _SUBJECT_WORDS)
    return kinds != {"modalities"} and not (is_classified and kinds <= {"anatomy", "modalities"})


def _find_clinical(lexicon: Lexicon, phrases: Iterable[str], *, generic: bool = False) -> set[str]:
    """Return the findings, organs, cells, devices and measures that phrases name.

    Args:
        generic: whether words such as disease and lesion count, too.
    """
    concepts = {
        name
        for phrase in phrases
        for unit in lexicon.find_units(phrase)
        for name in unit.concepts
        if len("".join(unit.words)) > 2 or not unit.words[0].isascii()
    }
    if generic and concepts & _GENERIC_FINDINGS:
        return concepts
    return {name for name in concepts - GENERIC_CONCEPTS if lexicon.concepts[name].kind in _CLINICAL_KINDS}


def _judge_families(
    lexicon: Lexicon, claims: RequestClaims, requested: Sequence[str], concrete: Sequence[str]
) -> Verdict:
    """Compare targets with classes of other names: of a classification, another finding contradicts what is asked for."""
    verdict = _compare_families(lexicon, requested, concrete)
    if claims.tasks[:1] not in (("diagnosis",), ("grading",)) or claims.classes:
        return verdict
    kinds = {lexicon.concepts[name].kind for name in _find_clinical(lexicon, requested)}
    if kinds == {"cells_tissues"} and verdict == "contradicted":
        return "silent"  # cells are what is classified; the classes are their findings
    return "contradicted" if _is_another_finding(lexicon, requested, concrete) else verdict


def _compare_families(lexicon: Lexicon, requested: Sequence[str], names: Sequence[str]) -> Verdict:
    """Compare targets with classes that none of them matches: kinds or parts of a target support it; siblings say nothing."""
    targets, classes = _find_clinical(lexicon, requested), _find_clinical(lexicon, names)
    if any(lexicon.get_wider(name, 6) & targets for name in classes):
        return "supported"
    return "silent" if not targets or have_common_ancestor(lexicon, targets, classes) else "contradicted"


def _is_another_finding(lexicon: Lexicon, requested: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether a finding is asked for, and classes are findings of which none is it, a kind of it or what it is a kind of."""
    targets, classes = _find_clinical(lexicon, requested), _find_clinical(lexicon, names)
    kinds = {lexicon.concepts[name].kind for name in targets | classes}
    related = {wider for name in targets for wider in lexicon.get_wider(name, 6)} | targets
    return (
        bool(targets)
        and kinds == {"findings"}
        and not (related | _SIGNS) & classes
        and not any(targets & set(lexicon.get_wider(name, 6)) for name in classes)
    )


def _is_about_something_else(
    lexicon: Lexicon, requested: Sequence[str], texts: Sequence[str], *, min_mentions: int = 1
) -> bool:
    """Return whether texts name findings, cells or objects of another family than all that is requested.

    Instruments are no findings. Of two findings both must be bound to a place or a wider kind: edema is found everywhere.

    Args:
        min_mentions: different texts that must name a thing for it to count.
    """
    families = {"findings", "cells_tissues", "devices"}

    def find_subjects(
        phrases: Sequence[str], min_count: int = 1, ignored_concepts: frozenset[str] = frozenset()
    ) -> set[str]:
        counts = Counter(
            name
            for phrase in phrases
            for name in {
                name
                for unit in lexicon.find_units(phrase)
                if len(unit.words[0]) > 3 or not unit.words[0].isascii()
                for concept in unit.concepts - ignored_concepts
                for name in {concept, *lexicon.get_wider(concept)} - GENERIC_CONCEPTS
            }
            if lexicon.concepts[name].kind in families
        )
        return {name for name, count in counts.items() if count >= min_count}

    targets, subjects = find_subjects(requested), find_subjects(tuple(dict.fromkeys(texts)), min_mentions, _CARRIERS)
    if not targets or not subjects or have_common_ancestor(lexicon, targets, subjects):
        return False
    target_kinds, subject_kinds = ({lexicon.concepts[name].kind for name in names} for names in (targets, subjects))
    if (target_kinds == {"devices"}) != (subject_kinds == {"devices"}):
        return True
    are_bound = all(lexicon.get_wider(name) for name in (*targets, *subjects))
    return target_kinds == subject_kinds and are_bound


def _is_telling(lexicon: Lexicon, name: str) -> bool:
    """Return whether the name of a class names a thing: no number, no letter, no `label_1`, no yes or no."""
    units = lexicon.find_units(name)
    words = [unit for unit in units if not unit.is_number and len("".join(unit.words)) > 1]
    generic = {
        "class",
        "mask",
        "background",
        "foreground",
        "yes",
        "no",
        "other",
        "positive",
        "lesion",
        "finding",
        "abnormality",
        "abnormal",
        "image",
    }
    return any(not (unit.concepts & generic) for unit in words)


def _mentions(lexicon: Lexicon, text: str, phrase: str) -> bool:
    """Return whether a text has all telling units of a phrase."""
    if match_term(phrase, text, lexicon) >= MATCH_SCORE:
        return True
    units = [unit for unit in lexicon.find_units(phrase) if not _is_filler(lexicon, unit)]
    present: Iterable[Unit] = lexicon.find_units(text)
    return bool(units) and all(
        any(unit.concepts & candidate.concepts or unit.words == candidate.words for candidate in present)
        for unit in units
    )
