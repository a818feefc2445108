"""Words for generated folders and requests in five languages: domains, findings, structures, quantities, columns, folders.

The words are general vocabulary of radiology, microscopy and photography; no public data set is imitated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LANGUAGES = ("en", "de", "fr", "es", "zh")


def in_languages(*words: str) -> dict[str, str]:
    """Return the words by language, in the order of `LANGUAGES`."""
    return dict(zip(LANGUAGES, words, strict=True))


@dataclass(frozen=True)
class Term:
    """A class of images, structures or objects.

    Args:
        words: by language.
        abbreviation: the usual short form in Latin letters.
        synonym: another English word for it, as a request may say.
    """

    words: Mapping[str, str]
    abbreviation: str
    synonym: str = ""


def make_term(abbreviation: str, *words: str, synonym: str = "") -> Term:
    return Term(in_languages(*words), abbreviation, synonym)


TERMS: dict[str, Term] = {
    "normal": make_term("norm", "normal", "normal", "normal", "normal", "正常", synonym="healthy"),
    "pneumonia": make_term("pna", "pneumonia", "Pneumonie", "pneumonie", "neumonia", "肺炎", synonym="lung infection"),
    "effusion": make_term(
        "eff",
        "pleural effusion",
        "Pleuraerguss",
        "épanchement pleural",
        "derrame pleural",
        "胸腔积液",
        synonym="pleural fluid",
    ),
    "pneumothorax": make_term(
        "ptx", "pneumothorax", "Pneumothorax", "pneumothorax", "neumotórax", "气胸", synonym="collapsed lung"
    ),
    "cardiomegaly": make_term(
        "cmg", "cardiomegaly", "Kardiomegalie", "cardiomégalie", "cardiomegalia", "心脏肥大", synonym="enlarged heart"
    ),
    "nevus": make_term("nv", "nevus", "Nävus", "naevus", "nevo", "色素痣", synonym="mole"),
    "melanoma": make_term("mel", "melanoma", "Melanom", "mélanome", "melanoma", "黑色素瘤", synonym="malignant mole"),
    "keratosis": make_term(
        "ker", "keratosis", "Keratose", "kératose", "queratosis", "角化病", synonym="keratotic lesion"
    ),
    "carcinoma": make_term("ca", "carcinoma", "Karzinom", "carcinome", "carcinoma", "癌", synonym="cancer"),
    "glioma": make_term("gli", "glioma", "Gliom", "gliome", "glioma", "胶质瘤", synonym="glial tumour"),
    "meningioma": make_term(
        "men", "meningioma", "Meningeom", "méningiome", "meningioma", "脑膜瘤", synonym="meningeal tumour"
    ),
    "metastasis": make_term(
        "met", "metastasis", "Metastase", "métastase", "metástasis", "转移瘤", synonym="secondary tumour"
    ),
    "cyst": make_term("cys", "cyst", "Zyste", "kyste", "quiste", "囊肿", synonym="fluid-filled lesion"),
    "stone": make_term("st", "stone", "Stein", "calcul", "cálculo", "结石", synonym="calculus"),
    "tumour": make_term("tu", "tumour", "Tumor", "tumeur", "tumor", "肿瘤", synonym="neoplasm"),
    "benign": make_term("ben", "benign", "gutartig", "bénin", "benigno", "良性", synonym="harmless"),
    "malignant": make_term("mal", "malignant", "bösartig", "malin", "maligno", "恶性", synonym="cancerous"),
    "polyp": make_term("pol", "polyp", "Polyp", "polype", "pólipo", "息肉", synonym="mucosal growth"),
    "ulcer": make_term("ulc", "ulcer", "Ulkus", "ulcère", "úlcera", "溃疡", synonym="mucosal defect"),
    "caries": make_term("car", "caries", "Karies", "carie", "caries", "龋齿", synonym="tooth decay"),
    "filling": make_term("fil", "filling", "Füllung", "obturation", "empaste", "补牙", synonym="restoration"),
    "implant": make_term("imp", "implant", "Implantat", "implant", "implante", "种植体", synonym="artificial root"),
    "red_cell": make_term(
        "rbc",
        "red blood cell",
        "rotes Blutkörperchen",
        "globule rouge",
        "glóbulo rojo",
        "红细胞",
        synonym="erythrocyte",
    ),
    "white_cell": make_term(
        "wbc",
        "white blood cell",
        "weißes Blutkörperchen",
        "globule blanc",
        "glóbulo blanco",
        "白细胞",
        synonym="leukocyte",
    ),
    "platelet": make_term("plt", "platelet", "Blutplättchen", "plaquette", "plaqueta", "血小板", synonym="thrombocyte"),
    "lung": make_term("lu", "lung", "Lunge", "poumon", "pulmón", "肺", synonym="pulmonary field"),
    "heart": make_term("he", "heart", "Herz", "cœur", "corazón", "心脏", synonym="cardiac silhouette"),
    "lesion": make_term("les", "lesion", "Läsion", "lésion", "lesión", "病灶", synonym="abnormal area"),
    "oedema": make_term("oed", "oedema", "Ödem", "œdème", "edema", "水肿", synonym="swelling"),
    "necrosis": make_term("nec", "necrosis", "Nekrose", "nécrose", "necrosis", "坏死", synonym="dead tissue"),
    "liver": make_term("liv", "liver", "Leber", "foie", "hígado", "肝脏", synonym="hepatic organ"),
    "spleen": make_term("spl", "spleen", "Milz", "rate", "bazo", "脾脏", synonym="splenic organ"),
    "kidney": make_term("kid", "kidney", "Niere", "rein", "riñón", "肾脏", synonym="renal organ"),
    "nodule": make_term("nod", "nodule", "Knoten", "nodule", "nódulo", "结节", synonym="small mass"),
    "haemorrhage": make_term("hae", "haemorrhage", "Blutung", "hémorragie", "hemorragia", "出血", synonym="bleeding"),
    "exudate": make_term("ex", "exudate", "Exsudat", "exsudat", "exudado", "渗出物", synonym="lipid deposit"),
    "optic_disc": make_term(
        "od", "optic disc", "Sehnervenkopf", "disque optique", "disco óptico", "视盘", synonym="optic nerve head"
    ),
    "drusen": make_term("dru", "drusen", "Drusen", "drusen", "drusas", "玻璃膜疣", synonym="retinal deposits"),
    "fluid": make_term("fl", "fluid", "Flüssigkeit", "fluide", "fluido", "积液", synonym="liquid"),
    "ventricle": make_term(
        "ven", "ventricle", "Ventrikel", "ventricule", "ventrículo", "心室", synonym="heart chamber"
    ),
    "myocardium": make_term("myo", "myocardium", "Myokard", "myocarde", "miocardio", "心肌", synonym="heart muscle"),
    "fracture": make_term("fx", "fracture", "Fraktur", "fracture", "fractura", "骨折", synonym="broken bone"),
    "bone": make_term("bo", "bone", "Knochen", "os", "hueso", "骨骼", synonym="skeleton"),
    "nucleus": make_term("nuc", "nucleus", "Zellkern", "noyau", "núcleo", "细胞核", synonym="cell nucleus"),
    "stroma": make_term("str", "stroma", "Stroma", "stroma", "estroma", "间质", synonym="connective tissue"),
    "body": make_term("bod", "body", "Körper", "corps", "cuerpo", "体表", synonym="external contour"),
    "spinal_cord": make_term(
        "sc", "spinal cord", "Rückenmark", "moelle épinière", "médula espinal", "脊髓", synonym="myelon"
    ),
    "artefact": make_term("art", "artefact", "Artefakt", "artefact", "artefacto", "伪影", synonym="image error"),
    "ruler": make_term("rul", "ruler", "Lineal", "règle", "regla", "标尺", synonym="scale bar"),
}

FURTHER_STRUCTURES = {2: ("artefact", "ruler"), 3: ("body", "spinal_cord")}
"""Dimensions -> what people also mark on images, and few ask for."""


@dataclass(frozen=True)
class Domain:
    """What is imaged, and how.

    Args:
        anatomy: the organ by language.
        imaging: the kind of image by language.
        modality: DICOM's code.
        dimensions: 2, 3 or both.
        findings: classes of whole images.
        structures: what masks mark.
        objects: what boxes mark.
        quantities: what a regression predicts.
    """

    key: str
    anatomy: Mapping[str, str]
    imaging: Mapping[str, str]
    modality: str
    dimensions: tuple[int, ...]
    colour: bool
    findings: tuple[str, ...]
    structures: tuple[str, ...]
    objects: tuple[str, ...]
    quantities: tuple[str, ...] = ("age", "score")


XRAY = in_languages("X-ray", "Röntgenbild", "radiographie", "radiografía", "X光片")
CT = in_languages("CT", "CT", "scanner CT", "TC", "CT扫描")
MRI = in_languages("MRI", "MRT", "IRM", "resonancia magnética", "磁共振成像")
MICROSCOPY = in_languages("microscopy", "Mikroskopie", "microscopie", "microscopía", "显微镜图像")
PHOTO = in_languages("dermoscopy", "Dermatoskopie", "dermoscopie", "dermatoscopia", "皮肤镜图像")
ENDOSCOPY = in_languages("endoscopy", "Endoskopie", "endoscopie", "endoscopia", "内镜图像")
FUNDUS = in_languages(
    "fundus photography", "Fundusfotografie", "photographie du fond d'œil", "fotografía de fondo de ojo", "眼底照片"
)
ULTRASOUND = in_languages("ultrasound", "Ultraschall", "échographie", "ecografía", "超声图像")
OCT = in_languages("OCT", "OCT", "OCT", "OCT", "OCT扫描")

DOMAINS: dict[str, Domain] = {
    domain.key: domain
    for domain in (
        Domain(
            "chest_xray", in_languages("chest", "Thorax", "thorax", "tórax", "胸部"), XRAY, "DX", (2,), False,
            ("normal", "pneumonia", "effusion", "pneumothorax", "cardiomegaly"), ("lung", "heart"),
            ("nodule", "effusion"), ("age", "ratio"),
        ),
        Domain(
            "skin", in_languages("skin", "Haut", "peau", "piel", "皮肤"), PHOTO, "XC", (2,), True,
            ("nevus", "melanoma", "keratosis", "carcinoma"), ("lesion",), ("nevus", "melanoma"), ("age", "diameter"),
        ),
        Domain(
            "brain_mri", in_languages("brain", "Gehirn", "cerveau", "cerebro", "脑部"), MRI, "MR", (2, 3), False,
            ("normal", "glioma", "meningioma", "metastasis"), ("tumour", "oedema", "necrosis"),
            ("tumour", "metastasis"), ("age", "volume"),
        ),
        Domain(
            "abdomen_ct", in_languages("abdomen", "Abdomen", "abdomen", "abdomen", "腹部"), CT, "CT", (2, 3), False,
            ("normal", "cyst", "stone", "tumour"), ("liver", "spleen", "kidney"), ("cyst", "stone"),
            ("age", "volume"),
        ),
        Domain(
            "breast_us", in_languages("breast", "Brust", "sein", "mama", "乳腺"), ULTRASOUND, "US", (2,), False,
            ("normal", "benign", "malignant"), ("lesion", "cyst"), ("cyst", "nodule"), ("age", "diameter"),
        ),
        Domain(
            "colon", in_languages("colon", "Darm", "côlon", "colon", "结肠"), ENDOSCOPY, "ES", (2,), True,
            ("normal", "polyp", "ulcer"), ("polyp", "ulcer"), ("polyp", "ulcer"), ("diameter", "score"),
        ),
        Domain(
            "teeth", in_languages("teeth", "Zähne", "dents", "dientes", "牙齿"), XRAY, "PX", (2,), False,
            ("normal", "caries", "filling", "implant"), ("caries", "filling", "implant"),
            ("caries", "filling", "implant"), ("age", "score"),
        ),
        Domain(
            "blood", in_languages("blood", "Blut", "sang", "sangre", "血液"), MICROSCOPY, "GM", (2,), True,
            ("red_cell", "white_cell", "platelet"), ("red_cell", "white_cell", "platelet"),
            ("red_cell", "white_cell", "platelet"), ("count", "diameter"),
        ),
        Domain(
            "retina", in_languages("retina", "Netzhaut", "rétine", "retina", "视网膜"), FUNDUS, "OP", (2,), True,
            ("normal", "haemorrhage", "drusen"), ("optic_disc", "exudate", "haemorrhage"),
            ("haemorrhage", "exudate"), ("age", "diameter"),
        ),
        Domain(
            "macula", in_languages("macula", "Makula", "macula", "mácula", "黄斑"), OCT, "OPT", (2, 3), False,
            ("normal", "drusen", "oedema"), ("fluid", "drusen"), ("fluid", "drusen"), ("thickness", "age"),
        ),
        Domain(
            "heart_mri", in_languages("heart", "Herz", "cœur", "corazón", "心脏"), MRI, "MR", (2, 3), False,
            ("normal", "oedema", "necrosis"), ("ventricle", "myocardium"), ("necrosis", "oedema"), ("volume", "age"),
        ),
        Domain(
            "wrist_xray", in_languages("wrist", "Handgelenk", "poignet", "muñeca", "手腕"), XRAY, "CR", (2,), False,
            ("normal", "fracture", "cyst"), ("bone", "fracture"), ("fracture", "implant"), ("age", "density"),
        ),
        Domain(
            "tissue", in_languages("kidney tissue", "Nierengewebe", "tissu rénal", "tejido renal", "肾组织"), MICROSCOPY,
            "SM", (2,), True, ("normal", "tumour", "necrosis", "stroma"), ("nucleus", "stroma"),
            ("nucleus", "necrosis"), ("count", "score"),
        ),
    )
}  # fmt: skip

QUANTITIES: dict[str, tuple[Mapping[str, str], str, float, float, int]] = {
    "age": (in_languages("age", "Alter", "âge", "edad", "年龄"), "years", 20, 85, 0),
    "score": (in_languages("score", "Punktwert", "score", "puntuación", "评分"), "points", 0, 40, 0),
    "ratio": (
        in_languages("cardiothoracic ratio", "Herz-Thorax-Quotient", "rapport cardiothoracique", "índice cardiotorácico", "心胸比"),
        "", 0.35, 0.75, 3,
    ),
    "diameter": (in_languages("diameter", "Durchmesser", "diamètre", "diámetro", "直径"), "mm", 2, 30, 1),
    "volume": (in_languages("volume", "Volumen", "volume", "volumen", "体积"), "ml", 5, 160, 1),
    "count": (in_languages("count", "Anzahl", "nombre", "número", "数量"), "", 3, 90, 0),
    "thickness": (in_languages("thickness", "Dicke", "épaisseur", "grosor", "厚度"), "µm", 180, 480, 0),
    "density": (in_languages("bone density", "Knochendichte", "densité osseuse", "densidad ósea", "骨密度"), "g/cm2", 0.4, 1.4, 3),
}  # fmt: skip
"""Key -> words, unit, lowest and highest value, decimals."""

SEVERITY = {
    "en": ("none", "mild", "moderate", "severe"),
    "de": ("keine", "leicht", "mittel", "schwer"),
    "fr": ("aucune", "légère", "modérée", "sévère"),
    "es": ("ninguna", "leve", "moderada", "grave"),
    "zh": ("无", "轻度", "中度", "重度"),
}

COLUMNS: dict[str, Mapping[str, tuple[str, ...]]] = {
    "image": {
        "en": ("image", "file", "filename", "image_id"), "de": ("Bild", "Datei", "Dateiname"), "fr": ("image", "fichier"),
        "es": ("imagen", "archivo"), "zh": ("图像", "文件名"),
    },
    "label": {
        "en": ("diagnosis", "finding", "label", "class"), "de": ("Diagnose", "Befund", "Klasse"),
        "fr": ("diagnostic", "classe"), "es": ("diagnóstico", "hallazgo", "clase"), "zh": ("诊断", "类别"),
    },
    "grade": {
        "en": ("grade", "severity", "stage"), "de": ("Grad", "Schweregrad"), "fr": ("grade", "sévérité"),
        "es": ("grado", "gravedad"), "zh": ("分级", "严重程度"),
    },
    "patient": {
        "en": ("patient", "patient_id", "subject"), "de": ("Patient", "Patientennummer"), "fr": ("patient", "id_patient"),
        "es": ("paciente", "id_paciente"), "zh": ("患者", "患者编号"),
    },
    "site": {
        "en": ("site", "centre"), "de": ("Zentrum", "Klinik"), "fr": ("centre", "site"), "es": ("centro", "hospital"),
        "zh": ("中心", "医院"),
    },
    "number": {
        "en": ("patient_no", "subject_no"), "de": ("Patient_Nr",), "fr": ("no_patient",), "es": ("num_paciente",),
        "zh": ("患者序号",),
    },
    "slice": {
        "en": ("slice", "view_no"), "de": ("Schicht", "Aufnahme"), "fr": ("coupe", "vue"), "es": ("corte", "toma"),
        "zh": ("切片", "拍摄"),
    },
    "split": {
        "en": ("split", "subset", "set"), "de": ("Teil", "Aufteilung"), "fr": ("partie", "ensemble"),
        "es": ("partición", "conjunto"), "zh": ("划分", "数据集"),
    },
    "sex": {"en": ("sex",), "de": ("Geschlecht",), "fr": ("sexe",), "es": ("sexo",), "zh": ("性别",)},
    "weight": {"en": ("weight_kg",), "de": ("Gewicht_kg",), "fr": ("poids_kg",), "es": ("peso_kg",), "zh": ("体重",)},
    "remark": {"en": ("remark",), "de": ("Bemerkung",), "fr": ("remarque",), "es": ("observación",), "zh": ("备注",)},
    "report": {
        "en": ("report", "text"), "de": ("Befundtext", "Bericht"), "fr": ("compte_rendu", "rapport"), "es": ("informe", "texto"),
        "zh": ("报告", "报告文本"),
    },
    "time": {
        "en": ("survival_months", "time_months"), "de": ("Überleben_Monate",), "fr": ("survie_mois",), "es": ("supervivencia_meses",),
        "zh": ("生存月数",),
    },
    "event": {"en": ("death", "event"), "de": ("verstorben",), "fr": ("décès",), "es": ("fallecimiento",), "zh": ("死亡",)},
}  # fmt: skip

FOLDERS: dict[str, Mapping[str, str]] = {
    "images": in_languages("images", "Bilder", "images", "imagenes", "图像"),
    "masks": in_languages("masks", "Masken", "masques", "mascaras", "掩膜"),
    "annotations": in_languages("annotations", "Annotationen", "annotations", "anotaciones", "标注"),
    "train": in_languages("train", "Training", "entrainement", "entrenamiento", "训练"),
    "val": in_languages("val", "Validierung", "validation", "validacion", "验证"),
    "test": in_languages("test", "Test", "test", "prueba", "测试"),
    "previews": in_languages("previews", "Vorschau", "apercus", "vistas", "预览"),
    "reports": in_languages("reports", "Befunde", "rapports", "informes", "报告"),
    "wrapper": in_languages("collection", "Datensatz", "collection", "coleccion", "数据"),
}
