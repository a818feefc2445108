"""Headers of columns and keys that name a person, as they are written in hospitals of several countries.

Written as people write them; `m3b.data.phi` compares them in its normal form (no case, accents or punctuation). Single words
that often mean something else (`Name`, `Nom`) are not here: what they mean depends on the columns beside them.
"""

from __future__ import annotations

ENGLISH = (
    "pt name", "pat name", "lname", "fname", "mname", "l name", "f name", "addr", "addr1", "addr2", "address 1",
    "address 2", "tel", "tel no", "cell phone", "yob", "year of birth", "d o b", "birthday", "bday",
    "city of residence", "town of residence", "gp name", "family doctor", "attending", "attending physician",
    "attending doctor", "referring physician", "referrer", "reported by", "signed by", "radiologist",
    "technologist", "guardian", "spouse", "emergency phone", "contact person", "contact name", "contact phone",
    "contact number", "hosp no", "hospital id", "hosp id", "med rec no", "unit number", "nhs id", "hic number",
    "health card", "health card number", "insurance policy", "bank account", "iban", "ward bed", "born", "born on", "birth",
)  # fmt: skip
GERMAN = (
    "Name, Vorname", "Nachname, Vorname", "Pat.-Name", "Patient Name Vorname", "Zuname", "Rufname", "geb.",
    "geb. am", "Geb.-Datum", "Geburtsdat.", "Geburtsjahr", "Geburtsname", "geboren am", "Telefonnummer",
    "Telefonnr.", "Tel.-Nr.", "Mobilnummer", "Handynummer", "Faxnummer", "Wohnort", "Wohnadresse", "Straße", "Str.",
    "Hausnummer", "Straße und Hausnummer", "PLZ Ort", "Hausarzt", "Hausärztin", "Überweiser", "Zuweiser",
    "überweisender Arzt", "behandelnder Arzt", "Befunder", "Radiologe", "MTRA", "Angehörige", "Ansprechpartner",
    "Krankenkasse Nr.", "Versichertennr.", "Versicherungsnummer", "KV-Nummer", "Krankenversichertennummer",
    "Fallnr.", "Fall-Nr.", "Aufnahmenummer", "Patientennr.", "Patientennummer", "Pat.-Nr.", "Personalausweisnummer",
    "Steuer-ID", "Arbeitgeber", "E-Mail-Adresse", "Geburtsort", "Nationalität Pass",
)  # fmt: skip
FRENCH = (
    "Nom, prénom", "Nom et prénom", "Nom prénom", "Nom de naissance", "Nom d'usage", "Nom de jeune fille",
    "Prénoms", "Né le", "Né(e) le", "Née le", "Date de naiss.", "DDN", "Lieu de naissance", "Année de naissance",
    "Tél.", "Tél", "N° tél", "N° de téléphone", "Téléphone", "Courriel", "Adresse postale", "Domicile",
    "Ville de résidence", "Rue", "CP ville", "Médecin traitant", "Médecin référent", "Médecin prescripteur",
    "Radiologue", "Personne à prévenir", "Personne de confiance", "N° de sécurité sociale", "NIR", "N° SS",
    "Numéro de sécu", "N° dossier", "Numéro de dossier", "IPP", "NIP", "N° patient", "N° d'admission",
)  # fmt: skip
SPANISH = (
    "Nombre y apellidos", "Apellidos y nombre", "Apellidos, nombre", "Nombre completo", "Primer apellido",
    "Segundo apellido", "Apellido", "Apellido 1", "Apellido 2", "NHC", "Nº historia", "N.º de historia",
    "Número de historia", "Nº H.C.", "Historia clínica", "F. nacimiento", "F. nac.", "Fec. nac.", "Fecha nac.",
    "Fecha de nacimiento", "Lugar de nacimiento", "Año de nacimiento", "Teléfono móvil", "Móvil", "Tfno.",
    "Domicilio", "Dirección", "Calle", "Población de residencia", "C.P.", "Médico de cabecera",
    "Médico responsable", "Médico solicitante", "Radiólogo", "Persona de contacto", "NIE", "Nº Seguridad Social",
    "Nacido", "Nacida", "Nacido el", "Nacimiento", "NSS", "CIP", "Tarjeta sanitaria", "CURP", "RUT", "Cédula", "Correo",
)  # fmt: skip
CHINESE = (
    "姓名", "名字", "患者姓名", "病人姓名", "受检者", "受检者姓名", "曾用名", "病案号", "病历号码", "住院号码",
    "门诊号", "门诊号码", "就诊号", "就诊卡号", "登记号", "患者编号姓名", "床号", "联系人", "联系人姓名",
    "联系电话", "联系方式", "电话号码", "手机号", "手机号码", "家庭住址", "家庭地址", "现住址", "户籍地址",
    "通讯地址", "住址", "籍贯", "邮编", "电子邮件", "微信", "身份证", "身份证号码", "证件号", "证件号码",
    "医保卡号", "社保号", "社会保障号", "出生年月", "出生年月日", "出生地", "生日", "主治医生", "主治医师",
    "主管医生", "申请医生", "报告医生", "审核医生", "检查医生", "送检医生", "家属", "家属姓名", "监护人",
    "工作单位", "病歷號", "出生日期", "電話", "聯絡電話", "地址", "醫生",
)  # fmt: skip
JAPANESE = (
    "氏名", "患者氏名", "患者名", "名前", "お名前", "姓", "名", "フリガナ", "ふりがな", "カナ氏名", "氏名カナ",
    "氏名（カナ）", "患者番号", "患者ID氏名", "カルテ番号", "診察券番号", "生年月日", "誕生日", "生年", "住所",
    "現住所", "郵便番号", "電話番号", "電話", "携帯電話", "携帯番号", "連絡先", "緊急連絡先", "メールアドレス",
    "メール", "主治医", "担当医", "担当医師", "依頼医", "読影医", "紹介医", "検査技師", "保険証番号", "保険者番号",
    "被保険者番号", "マイナンバー", "家族氏名", "保護者", "勤務先",
)  # fmt: skip
OTHERS = (
    "이름", "성명", "환자명", "환자 성명", "생년월일", "주민등록번호", "전화번호", "휴대폰", "주소", "등록번호",
    "담당의", "이메일", "ФИО", "Фамилия", "Имя", "Отчество", "Дата рождения", "Адрес", "Телефон", "СНИЛС", "Полис",
    "Лечащий врач", "Паспорт", "Imię", "Nazwisko", "Imię i nazwisko", "Data urodzenia", "PESEL",
    "Adres zamieszkania", "Numer telefonu", "Lekarz prowadzący", "Adı", "Soyadı", "Adı Soyadı", "Ad Soyad",
    "Doğum tarihi", "TC Kimlik No", "Telefon", "Adres", "Namn", "Förnamn", "Efternamn", "Personnummer",
    "Födelsedatum", "Adress", "Navn", "Fornavn", "Etternavn", "Efternavn", "CPR-nummer", "Fødselsdato",
    "Fødselsnummer", "Etunimi", "Sukunimi", "Henkilötunnus", "Syntymäaika", "الاسم", "اسم المريض", "تاريخ الميلاد",
    "العنوان", "رقم الهاتف", "रोगी का नाम", "नाम", "जन्म तिथि", "पता", "फ़ोन", "Όνομα", "Επώνυμο", "Ονοματεπώνυμο",
    "Ημερομηνία γέννησης", "Διεύθυνση", "Τηλέφωνο", "ΑΜΚΑ", "Nome e cognome", "Codice fiscale", "Luogo di nascita",
    "Cellulare", "Medico curante", "Nome completo", "Nome do paciente", "Telemóvel", "Morada", "Número de utente",
    "Prontuário", "BSN", "Geboren", "Woonplaats", "Huisarts", "Patiëntnummer",
)  # fmt: skip
WORDS = (*ENGLISH, *GERMAN, *FRENCH, *SPANISH, *CHINESE, *JAPANESE, *OTHERS)
