"""Places where identity stands (header x language x carrier) and everyday terms that are none: the suite's own lists."""

from __future__ import annotations

PLACES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "name, English": (
        ("patient name", "NAME_LAST", "patient_first", "surname", "PtName", "name_of_patient", "maidenname", "Name"),
        ("Thornton, Emily", "Whitfield, Oliver", "Hargreaves, Amelia")),
    "name, German": (("Nachname", "Patientenname", "Geburtsname", "Name der Mutter", "Name, Vorname"),
                     ("Schmidt, Katharina", "Vogel, Matthias", "Krause, Ingrid")),
    "name, French": (("Nom", "Nom de famille", "Prénom", "nom_patient", "Nom de jeune fille"),
                     ("Lefebvre", "Fournier", "Girard")),
    "name, Spanish": (("Nombre", "Apellidos", "nombre_paciente", "PrimerApellido"),
                      ("Lucía Navarro", "Javier Ortega", "Elena Serrano")),
    "name, Italian, Portuguese, Polish, Turkish": (("Cognome", "Sobrenome", "Nazwisko", "Soyadı", "nome do paciente"),
                                                   ("Ferrari", "Esposito", "Ricci")),
    "name, Chinese, Japanese": (("姓名", "患者姓名", "氏名", "ご家族氏名"), ("王小明", "李晓红", "张丽华")),
    "name below no header of its own": (("who", "column_7"), ("Emily Thornton", "Oliver Whitfield", "Amelia Clarke")),
    "birth": (
        ("bdate", "birth_dt", "date_birth", "yob", "DOB", "dateofbirth", "Geburtsdatum", "Geburtsjahr", "date de naissance",
         "Fecha_Nacimiento", "data di nascita", "data_nascimento", "geboortedatum", "出生日期", "生年月日"),
        ("12.03.1956", "30.11.1961", "04.05.1978")),
    "dates of birth below no header of their own": (
        ("d1",), ("1931-05-04", "1945-11-30", "1956-03-12", "1968-07-21", "1984-02-09", "1999-12-24")),
    "contact": (
        ("city", "contact_no", "phone", "telno", "mobile phone", "Wohnort", "Telefon privat", "Handynummer", "ville", "téléphone",
         "ciudad", "teléfono móvil", "indirizzo", "endereço", "电话", "住所", "email address"),
        ("Karlsruhe 17", "Göttingen 18", "Heilbronn 19")),
    "record and insurance": (
        ("accession", "accession_number", "MRN", "medical_record_no", "ssn", "social security no", "insurance_no", "Krankenkasse",
         "Sozialversicherungsnr", "Versichertennummer", "Numéro de sécurité sociale", "n° sécu", "número de seguridad social",
         "身份证号码", "医保号", "病历号"),
        ("HX-77120A", "HX-77121B", "HX-77122C")),
    "person beside the patient": (("referring_md", "referring physician", "Hausarzt", "médecin traitant", "spouse"),
                                  ("Hillebrandt", "Kowalczyk", "Abernathy")),
    "checked numbers below no header of their own": (("x1",), ("943 476 5919", "401 023 2137", "987 654 4321")),
}  # fmt: skip
"""Headers and the values below them, by what they tell; all of the values are invented."""

FINDINGS = """
pneumonia|pleural effusion|Pleural Effusion|cardiomegaly|Lung Opacity|No Finding|atelectasis|pneumothorax|consolidation|edema|emphysema
fibrosis|hernia|infiltration|mass|nodule|Pleural Thickening|fracture|Support Devices|Enlarged Cardiomediastinum|Aortic enlargement
calcification|ILD|Other lesion|tuberculosis|COVID-19|normal|abnormal|benign|malignant|carcinoma in situ|Basal cell carcinoma|melanoma
melanocytic nevus|actinic keratosis|dermatofibroma|vascular lesion|seborrheic keratosis|glioma|meningioma|pituitary|Glioblastoma
intraparenchymal|subdural|epidural|subarachnoid|intraventricular|ischemic stroke|aneurysm|stenosis|osteoarthritis|osteophyte|scoliosis
polyp|adenoma|ulcerative colitis|esophagitis|diverticulosis|hepatocellular carcinoma|cirrhosis|steatosis|cyst|stone|tumor|metastasis
diabetic retinopathy|glaucoma|cataract|drusen|choroidal neovascularization|macular edema|microaneurysm|hard exudates|cotton wool spots
"""
EPONYMS = """
Kellgren-Lawrence|Child-Pugh|Ann Arbor|Graves disease|Crohn disease|Hodgkin lymphoma|Non-Hodgkin lymphoma|Wilms tumor|Ewing sarcoma
Kaposi sarcoma|Barrett esophagus|Parkinson disease|Alzheimer disease|Huntington disease|Paget disease|Cushing syndrome|Down syndrome
Turner syndrome|Marfan syndrome|Hashimoto thyroiditis|Pancoast tumor|Legg-Calvé-Perthes|Osgood-Schlatter|Hill-Sachs lesion
Bankart lesion|Baker cyst|Fazekas 2|Bosniak III|Gleason 3+4|Robson class|Salter-Harris II|Schatzker IV|Garden III|Weber B|Modic type 1
Lisfranc injury|Colles fracture|Hounsfield|Broca area|Circle of Willis|Wernicke area|Bartholin cyst|Meckel diverticulum
Bochdalek hernia
"""
CLASSES = """
liver|left kidney|right kidney|spleen|pancreas|gallbladder|aorta|Left Ventricle|Right Atrium|Myocardium|femur|tibia|patella|hippocampus
anterior|posterior|cancer|stroma|lymphocyte|neutrophil|Eosinophil|monocyte|basophil|erythroblast|platelet|background|foreground|positive
negative|mild|moderate|severe|grade 0|Grade II|stage IV|T2N0M0|BI-RADS 4|PI-RADS 3|Lung-RADS 4A|TI-RADS 5|male|female|smoker|never
axial|coronal|sagittal|PA|AP|lateral|supine|prone|train|val|test|site A|Siemens|Philips Ingenia|GE Discovery|SIGNA Architect|Skyra
Normal Tissue|White Matter|Gray Matter|Iris Brown|Rose Bengal|Max Intensity|Upper Lobe|Lower Lobe|Main Stem|Young Adult|Van Gieson
"""
MODALITIES = """
CT|MR|CR|DX|MG|US|PT|NM|XA|OCT|MRI|X-ray|T1w|T2w|FLAIR|DWI|ADC|SWI|dermoscopy|fundus|histopathology|H&E|cytology|endoscopy|ultrasound
mammography|fluoroscopy|CBCT|PET-CT|angiography|T1-weighted|contrast-enhanced CT|b1000|TOF|bSSFP
"""
DATES_AND_NUMBERS = """
2019-03-04|2020-11-30|2021-07-21|0.512|12.5 mm|512|1.2.840.113619.2.55.3|case_0001|sub-01|IM-0001-0002|images/0001.png|4471923
"""
TERMS = tuple(
    term
    for block in (FINDINGS, EPONYMS, CLASSES, MODALITIES, DATES_AND_NUMBERS)
    for term in block.strip().replace("\n", "|").split("|")
)
HEADERS = tuple(
    """
    patient|patient_id|PatientID|subject|subject_id|case|case_id|study_id|image|image_id|image_path|filename|file_name|mask|label|labels
    class|class_name|diagnosis|Diagnose|diagnóstico|診断|诊断|finding|Finding Labels|Befund|lésion|age|sex|gender|alter|geschlecht|性别
    年龄|birads|grade|stage|birth_weight|gestational age at birth|birth order|出生体重
    phone_model|smartphone|email_template|radiologist_label|reader_1
    site|hospital|center|scanner|manufacturer|portable|view position|laterality|study date|StudyDate|visit date|follow-up|first visit
    last_followup|family history|first|last|split|fold|weight|height|bmi|survival_days|event|os_time|organ_name|label_name|dataset name
    name_of_finding|nom_fichier|zip_path|address_space|city_scape|mobilenet_score|contact date|insurance_type|record
    number|code|type|x|y
    width|height_px|CNS|NIHSS|mRS|KL grade|PSA|HER2|series|SeriesDescription|Modality|BodyPartExamined|report|notes|comment
    患者|patient number
    """.strip().replace("\n", "|").replace("    ", "").split("|")
)  # fmt: skip
