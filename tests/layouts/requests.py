"""Requests and notes of generated folders in five languages."""

from __future__ import annotations

from collections.abc import Sequence

from layouts.terms import QUANTITIES, Domain, Term

AND = {"en": " and ", "de": " und ", "fr": " et ", "es": " y ", "zh": "和"}
IMAGES = {
    "en": "{anatomy} {imaging} images", "de": "{imaging}-Aufnahmen ({anatomy})", "fr": "images de {imaging} ({anatomy})",
    "es": "imágenes de {imaging} ({anatomy})", "zh": "{anatomy}{imaging}",
}  # fmt: skip
SENTENCES: dict[str, dict[str, tuple[str, ...]]] = {
    "diagnosis": {
        "en": ("Classify {images}", "Train a classifier of the diagnosis for {images}"),
        "de": ("Klassifiziere {images}", "Trainiere ein Modell, das die Diagnose auf {images} stellt"),
        "fr": ("Classifier les {images}", "Entraîner un modèle qui pose le diagnostic sur des {images}"),
        "es": ("Clasificar {images}", "Entrenar un modelo que diagnostique {images}"),
        "zh": ("对{images}进行分类", "训练一个{images}诊断分类模型"),
    },
    "multi_label": {
        "en": ("Find out which findings are present on {images}; several can apply",),
        "de": ("Bestimme, welche Befunde auf {images} vorliegen; mehrere sind möglich",),
        "fr": ("Déterminer quelles anomalies sont présentes sur les {images} ; plusieurs sont possibles",),
        "es": ("Determinar qué hallazgos hay en {images}; puede haber varios",),
        "zh": ("判断{images}上有哪些表现，可以有多种",),
    },
    "grading": {
        "en": ("Grade the severity on {images}",), "de": ("Bestimme den Schweregrad auf {images}",),
        "fr": ("Évaluer le grade de sévérité sur les {images}",), "es": ("Graduar la gravedad en {images}",),
        "zh": ("对{images}的严重程度分级",),
    },
    "regression": {
        "en": ("Predict the {quantity} from {images}",), "de": ("Sage {quantity} aus {images} vorher",),
        "fr": ("Prédire : {quantity}, à partir des {images}",), "es": ("Predecir: {quantity}, a partir de {images}",),
        "zh": ("根据{images}预测{quantity}",),
    },
    "survival": {
        "en": ("Predict the overall survival from {images}",), "de": ("Sage das Gesamtüberleben aus {images} vorher",),
        "fr": ("Prédire la survie globale à partir des {images}",), "es": ("Predecir la supervivencia global a partir de {images}",),
        "zh": ("根据{images}预测总生存期",),
    },
    "segmentation": {
        "en": ("Segment the annotated structures on {images}",), "de": ("Segmentiere die markierten Strukturen auf {images}",),
        "fr": ("Segmenter les structures annotées sur les {images}",),
        "es": ("Segmentar las estructuras anotadas en {images}",), "zh": ("在{images}上分割已标注的结构",),
    },
    "detection": {
        "en": ("Detect the annotated objects with bounding boxes on {images}",),
        "de": ("Finde die markierten Objekte mit Boxen auf {images}",),
        "fr": ("Détecter les objets annotés avec des boîtes englobantes sur les {images}",),
        "es": ("Detectar los objetos anotados con cajas en {images}",), "zh": ("用边界框检测{images}上已标注的目标",),
    },
    "report": {
        "en": ("Write the report of {images}",), "de": ("Schreibe den Befundbericht zu {images}",),
        "fr": ("Rédiger le compte rendu des {images}",), "es": ("Redactar el informe de {images}",),
        "zh": ("为{images}撰写诊断报告",),
    },
}  # fmt: skip
SENTENCES_WITH_CLASSES = {
    "diagnosis": {
        "en": "Classify {images} as {classes}",
        "de": "Unterscheide {classes} auf {images}",
        "fr": "Distinguer {classes} sur les {images}",
        "es": "Distinguir {classes} en {images}",
        "zh": "在{images}上区分{classes}",
    },
    "multi_label": {
        "en": "Decide for each of the findings {classes} whether it is present on {images}; several can apply",
        "de": "Entscheide für jeden der Befunde {classes}, ob er auf {images} vorliegt; mehrere sind möglich",
        "fr": "Dire pour chaque anomalie ({classes}) si elle est présente sur les {images} ; plusieurs sont possibles",
        "es": "Decidir para cada hallazgo ({classes}) si está presente en {images}; puede haber varios",
        "zh": "判断{images}上{classes}是否存在，可同时存在多种",
    },
    "segmentation": {
        "en": "Segment {classes} on {images}",
        "de": "Segmentiere {classes} auf {images}",
        "fr": "Segmenter {classes} sur les {images}",
        "es": "Segmentar {classes} en {images}",
        "zh": "在{images}上分割{classes}",
    },
    "detection": {
        "en": "Detect {classes} with bounding boxes on {images}",
        "de": "Finde {classes} mit Boxen auf {images}",
        "fr": "Détecter {classes} avec des boîtes englobantes sur les {images}",
        "es": "Detectar {classes} con cajas en {images}",
        "zh": "用边界框检测{images}上的{classes}",
    },
}
WISHES = {
    "en": ". Please use a modern network and tell me how well it works; I need it for a talk on Friday.",
    "de": ". Bitte ein modernes Netz verwenden und sagen, wie gut es ist; ich brauche es für einen Vortrag am Freitag.",
    "fr": ". Merci d'utiliser un réseau moderne et de dire s'il est bon ; il me le faut pour un exposé vendredi.",
    "es": ". Por favor, con una red moderna, y di si funciona bien; lo necesito para una charla el viernes.",
    "zh": "。请使用现代网络并说明效果如何，我周五的报告要用。",
}
OWN_TEST = {
    "en": ". Test it on the test part that the folder has.", "de": ". Teste auf dem Testteil, den der Ordner hat.",
    "fr": ". Le tester sur la partie de test du dossier.", "es": ". Probar con la parte de prueba de la carpeta.",
    "zh": "。请在文件夹自带的测试集上测试。",
}  # fmt: skip
TITLES = {
    "en": "{imaging}, {anatomy}: images of two hospitals", "de": "{imaging}, {anatomy}: Aufnahmen zweier Kliniken",
    "fr": "{imaging}, {anatomy} : images de deux hôpitaux", "es": "{imaging}, {anatomy}: imágenes de dos hospitales",
    "zh": "{anatomy}{imaging}：来自两家医院的图像",
}  # fmt: skip
MARKED = {
    "en": "The masks mark: ",
    "de": "Die Masken zeigen: ",
    "fr": "Les masques montrent : ",
    "es": "Las máscaras marcan: ",
    "zh": "掩膜标注：",
}
CLASSES = {"en": "Classes: ", "de": "Klassen: ", "fr": "Classes : ", "es": "Clases: ", "zh": "类别："}
REPORT_NORMAL = {
    "en": ("No abnormality.", "Regular findings.", "Nothing unusual is seen."),
    "de": ("Kein auffälliger Befund.", "Regelrechter Befund.", "Unauffällig."), "fr": ("Pas d'anomalie.", "Examen normal."),
    "es": ("Sin anomalías.", "Estudio normal."), "zh": ("未见异常。", "检查结果正常。"),
}  # fmt: skip
REPORT_FINDING = {
    "en": ("There is {finding}, {place}.", "The {anatomy} shows {finding} {place}."),
    "de": ("Nachweis: {finding}, {place}.", "{anatomy}: {finding} {place}."),
    "fr": ("On note : {finding}, {place}.",),
    "es": ("Se observa: {finding}, {place}.",),
    "zh": ("可见{finding}，{place}。",),
}
REPORT_OPENINGS = {
    "en": (
        "Compared with the examination {number} days ago.",
        "Image quality is sufficient; {number} images were reviewed.",
    ),
    "de": (
        "Vergleich mit der Untersuchung vor {number} Tagen.",
        "Die Bildqualität ist ausreichend; {number} Bilder lagen vor.",
    ),
    "fr": (
        "Comparaison avec l'examen d'il y a {number} jours.",
        "Qualité d'image suffisante ; {number} images ont été lues.",
    ),
    "es": (
        "Comparación con el estudio de hace {number} días.",
        "Calidad de imagen suficiente; se revisaron {number} imágenes.",
    ),
    "zh": ("与{number}天前的检查比较。", "图像质量良好，共阅片{number}张。"),
}
REPORT_ENDS = {
    "en": ("A follow-up in {number} months is advised.", "No further measures are needed at present."),
    "de": ("Eine Kontrolle in {number} Monaten wird empfohlen.", "Derzeit sind keine weiteren Maßnahmen nötig."),
    "fr": ("Un contrôle dans {number} mois est conseillé.", "Pas d'autre mesure nécessaire actuellement."),
    "es": ("Se recomienda un control en {number} meses.", "Por ahora no se precisan más medidas."),
    "zh": ("建议{number}个月后复查。", "目前无需进一步处理。"),
}
PLACES = {
    "en": ("on the left", "on the right", "in the centre"),
    "de": ("links", "rechts", "zentral"),
    "fr": ("à gauche", "à droite", "au centre"),
    "es": ("a la izquierda", "a la derecha", "en el centro"),
    "zh": ("位于左侧", "位于右侧", "位于中央"),
}


def describe_images(domain: Domain, language: str, imaging_of: Domain | None = None) -> str:
    """Return words for the images of a domain."""
    imaging = (imaging_of or domain).imaging[language]
    return IMAGES[language].format(anatomy=domain.anatomy[language], imaging=imaging)


def join_words(words: Sequence[str], language: str) -> str:
    separator = "、" if language == "zh" else ", "
    return words[0] if len(words) == 1 else separator.join(words[:-1]) + AND[language] + words[-1]


def make_request(
    kind: str,
    language: str,
    wording: str,
    images: str,
    classes: Sequence[Term],
    *,
    quantity: str = "",
    variant: int = 0,
) -> str:
    """Return a request.

    Args:
        kind: key of `SENTENCES`.
        wording: a value of the axis `request_wording`.
        variant: which of several sentences.
    """
    if classes and wording in ("names_classes", "synonyms") and kind in SENTENCES_WITH_CLASSES:
        uses_synonyms = wording == "synonyms" and language == "en"
        words = [term.synonym if uses_synonyms and term.synonym else term.words[language] for term in classes]
        return SENTENCES_WITH_CLASSES[kind][language].format(images=images, classes=join_words(words, language))
    sentences = SENTENCES[kind][language]
    quantity_words = ""
    if quantity:
        words_of, unit, *_ = QUANTITIES[quantity]
        quantity_words = words_of[language] + (f" ({unit})" if unit and variant else "")
    request = sentences[variant % len(sentences)].format(images=images, quantity=quantity_words)
    return request + WISHES[language] if wording == "superfluous" else request


def make_title(domain: Domain, language: str) -> str:
    return TITLES[language].format(anatomy=domain.anatomy[language], imaging=domain.imaging[language])
