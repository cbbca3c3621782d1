package synthetic

// words are ordinary English words, each one token in most vocabularies. There
// are enough that seven of them tell 2^64 prompts apart.
const words = `
able about above across add after again against age ago air all almost alone along already also
although always am among an and animal animals another answer any anything area around as ask asked
at away baby back ball bank base be beautiful became because become bed been before began begin
behind being below beside best better between big bird black blue board boat body book both bottom
box boy bright bring brought brown build built business but buy by called came can cannot car care
carefully carry case catch caught center certain change check child children choose circle city
class clear close club cold color come common complete copy correct could country course cut dark
day deep did difference different distance do does dog done door down draw drink dry during each
early earth easy eat edge eight either else end energy engine enough entire especially even event
ever every everyone everything exact example except expect explain express eye face fact factor fall
family famous far farm fast father fear feel feet fell felt few field figure final finally find fine
finish fire first fish five floor fly follow food foot for forest form forward found four free fresh
friend from front fruit full fun game garden gave get girl give glad glass go going gold gone good
got government grass great green grew ground group grow guess guide had hair half hand happened
happy hard has have head hear heard heart heat heavy held help her here high hill him himself
history hold home hope horse hot hotel hour house how however human hundred ice idea if image
important in industry information inside instead into iron is island it its itself job join judge
jump just keep kept kind kitchen knew know lady lake land language large last late later law lay
lead learn learned least leave leaves left length less let letter library life light like limit line
link list listen little live lived living local long longer look lost lot low lunch machine made
magic main major make man manage many map mark market matter may maybe me meal mean measure medical
meet meeting memory men metal method middle might milk mind minute miss model modern moment money
moon more morning most mother mountain mouth move much music must my name nation natural nature near
necessary neck need never new next nice night no noise north not nothing notice novel now number
object ocean of off office officer often oil old on once one only open opinion option or orange
order origin other our out outside over own owner page pain pair paper park part party pass past
path patient pattern pay peace people perfect perhaps person phone photo pick picture piece pilot
pink pipe place plan plane plants play pocket poet point police pool poor popular possible post
pound power prepare present press pretty price prince print prize probably problem produce program
proof proper protect proud prove public pull purple push put quality quarter queen question quick
quiet quite race radio rain raise ran range rare rate rather raw reach read reading ready real
really reason record red region relief remember reply report request rescue rest result rich ride
right ring rise risk river road rock role roll roof room root rope rough round route royal rule run
rush sad safe said sail salt same sample sand sat save saw say scale scene school score screen sea
search season seat second secret section see seed seem seen select sell sense sent sentence series
serve service set settle seven several shade shake shape share sharp she shell shine ship shirt
shock shoe shop shore short should shout show shown shut sick side sight sign signal silence silver
simple since sing single six size skill skin sky sleep slip slow small smart smell smile smoke
smooth snow so social soft soil solid solution solve some someone something sometimes song soon sort
soul sound source south space spare speak special speed spend spirit split sport spot spread spring
square staff stage stair stamp stand standard start state station stay steam steel step stick still
stone stood stop store storm story straight strange stream street stretch strike string strong
structure student study style subject such suddenly sugar suggest suit summer sun supply support
suppose sure surface surprise sweet swim switch symbol system table tail take talk tall target task
taste teacher team tear tell ten tend term test than thank that the their them themselves then
theory there these thick thin thing things think third this those though thought three through throw
thus ticket tie tight time tiny tire title to today together told tone tongue too took tool tooth
top total touch tour toward tower town track trade train travel treat tree trial trick trip trouble
truck true trust truth try turn turned two type under understand union unit until up upon upper us
use used usual usually valley value various version very victory view village visit voice wait walk
walked wall want war warm warn wash waste watch water wave way we weak wealth wear weather week
weight well went were west what wheel when where whether which while white who whole whose why wide
wild will wind window wine wing winner winter wise wish with within without woman wonder wood word
words work worker world worry worth would write wrote yard year years yellow yet young your yourself
zero
`
