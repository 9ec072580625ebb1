//! Vocabulary of the generated play.
//!
//! Every list is a string of words separated by white space. Words near the
//! front of a list are chosen more often than those near its end, so that the
//! text has common and rare words. Nouns are written in the singular; an
//! irregular plural follows a slash (`goose/geese`). Verbs are written in the
//! base form; `+` doubles the last consonant (`drop+` gives `dropped`), and an
//! irregular verb gives its past and its participle (`eat/ate/eaten`).

/// Things that can be carried, lost and mended.
pub const THINGS: &str = "kettle lantern basket key ladder bucket ribbon letter candle button mirror feather \
    blanket spoon teapot hammer kite drum fiddle whistle bell map book purse coin rope net \
    oar anchor sail compass trumpet saddle wheel cart hat cloak boot scarf glove apron \
    umbrella pillow chair stool table cradle broom shovel rake jug bowl plate cup bottle jar \
    box/boxes chest crate sack parcel lamp clock thimble needle barrel pebble knife/knives \
    hook shelf/shelves gate door window curtain carpet painting brush/brushes pen inkwell \
    notebook medal ring necklace crown mask puppet doll spyglass/spyglasses plough sickle \
    wheelbarrow fence bench/benches statue chimney signpost raft paddle bonnet wig sword \
    shield banner tent flute harp violin bagpipe accordion pulley chisel saw axle nail screw \
    lever mallet tankard goblet saucer pitcher teaspoon ladle sieve mousetrap birdcage \
    snowglobe postcard diary/diaries poster portrait cushion mattress/mattresses hammock \
    stocking slipper mitten bracelet brooch/brooches locket wallet satchel suitcase trunk \
    bicycle sledge balloon canoe rowboat buoy telescope magnet lens/lenses padlock \
    doorbell doorknob weathervane sundial scarecrow beehive turnstile marble domino/dominoes \
    chessboard stamp envelope receipt contract treaty/treaties";

/// Things to eat.
pub const FOODS: &str = "pear apple plum cherry/cherries turnip onion carrot cabbage pumpkin loaf/loaves pie \
    pudding dumpling pancake biscuit cheese egg walnut chestnut berry/berries sausage \
    pasty/pasties mushroom fig radish/radishes peach/peaches bun tart cake herring oyster \
    lemon melon parsnip waffle muffin almond apricot leek quince potato/potatoes \
    tomato/tomatoes bean pea cucumber beetroot orange raisin date nectarine olive crumpet \
    scone doughnut pretzel noodle omelette kipper sardine crab clam pickle ham \
    pastry/pastries trifle toffee meringue strudel custard sandwich/sandwiches";

/// Beasts, birds and small creatures.
pub const ANIMALS: &str = "goat goose/geese duck hen cat dog mouse/mice rabbit fox/foxes badger hedgehog otter \
    heron owl crow magpie sparrow robin swan pony/ponies donkey mule ox/oxen cow calf/calves \
    sheep/sheep lamb pig frog toad newt snail beetle moth bee wasp spider squirrel weasel \
    ferret kitten puppy/puppies hare trout eel gull pigeon lizard tortoise bat cricket stork \
    raven falcon finch/finches starling swallow cuckoo woodpecker peacock turkey gosling \
    duckling foal colt stallion terrier hound spaniel mole vole shrew stoat deer/deer stag \
    seal whale dolphin salmon carp pike lobster crab jellyfish/jellyfish ant grasshopper \
    dragonfly/dragonflies butterfly/butterflies ladybird centipede earwig wolf/wolves bear \
    monkey parrot camel elephant dragon griffin";

/// People known only by what they do.
pub const TRADES: &str = "baker miller sailor tailor tinker piper shepherd farmer captain cook builder smith \
    carpenter doctor judge mayor teacher painter weaver potter gardener hunter fiddler \
    juggler merchant pedlar soldier stranger traveller hermit cousin drummer apprentice \
    neighbour lodger pilgrim poet clerk thief/thieves porter fisher brewer cobbler barber \
    printer librarian magician astronomer actor giant ghost beggar bishop abbot monk duke \
    baron herald jester dancer singer trumpeter harper organist conductor inventor explorer \
    geologist botanist apothecary/apothecaries surgeon dentist nurse lawyer notary/notaries \
    banker grocer butcher candlemaker ropemaker shipwright cartwright saddler \
    thatcher mason plumber glazier roofer chimneysweep watchman/watchmen ferryman/ferrymen \
    gamekeeper innkeeper goatherd beekeeper governor ambassador wizard goblin scholar";

/// Preposition and place.
pub const PLACES: &[&str] = &[
    "at the harbour",
    "in the orchard",
    "on the bridge",
    "by the well",
    "at the market",
    "behind the barn",
    "in the mill",
    "near the river",
    "under the stairs",
    "in the attic",
    "on the hill",
    "beside the fountain",
    "in the garden",
    "at the tavern",
    "in the cellar",
    "by the lighthouse",
    "in the meadow",
    "on the roof",
    "at the crossroads",
    "in the forest",
    "behind the chapel",
    "in the kitchen",
    "on the pier",
    "near the quarry",
    "in the bakery",
    "under the old oak",
    "at the ferry",
    "in the library",
    "beside the pond",
    "on the island",
    "in the tower",
    "at the smithy",
    "along the hedge",
    "in the stable",
    "near the windmill",
    "beneath the willow",
    "in the square",
    "on the beach",
    "at the toll house",
    "in the marsh",
    "behind the school",
    "in the vineyard",
    "by the fireplace",
    "at the edge of the village",
];

/// Qualities of things.
pub const THING_ADJ: &str = "old copper broken little wooden rusty golden heavy painted empty silver crooked borrowed \
    precious dusty green blue red yellow white black purple striped round square narrow \
    enormous tiny cracked polished forgotten ancient humble hollow leather velvet iron glass \
    brass tattered splendid ordinary curious foreign expensive cheap useless dreadful \
    handsome shabby slippery wet spotless lopsided orange pink scarlet silken woollen cotton \
    paper clockwork muddy sticky greasy gleaming faded gilded carved woven folded \
    bent twisted rattling squeaky mysterious magical haunted famous unlucky suspicious \
    beloved secret forbidden portable waterproof invisible triangular oval slender \
    bulky delicate sturdy fragile ugly elegant";

/// Qualities of food.
pub const FOOD_ADJ: &str = "ripe sweet sour warm cold fresh salty bitter burnt enormous tiny juicy stale spicy crisp \
    soft rotten golden tasty delicious wrinkled honeyed smoked pickled buttered expensive \
    peppery bruised sugary frozen tender chewy crunchy creamy mouldy fragrant lumpy sliced \
    stuffed toasted steamed candied foreign homemade forbidden squashed magnificent doubtful";

/// Tempers of people and animals, used before a noun and after a verb.
pub const MOODS: &str = "happy hungry tired clever gentle lazy brave stubborn foolish sleepy proud quiet angry \
    cheerful lonely wise nervous honest patient jealous grumpy shy curious greedy polite \
    noisy careful lucky clumsy famous humble restless thirsty cunning merry solemn anxious \
    dizzy generous forgetful suspicious fierce bashful thoughtful wicked drowsy dreamy \
    sensible ridiculous dignified elderly youthful handsome untidy elegant melancholy \
    mischievous obedient ambitious absent unlucky unhappy heroic cowardly talkative reckless \
    frugal quarrelsome impatient modest graceful stern loyal";

/// Manner, after the verb.
pub const ADVERBS: &str = "slowly quietly gladly twice again alone together badly carefully proudly softly bravely \
    secretly politely loudly patiently suddenly happily sadly warily kindly clumsily eagerly \
    solemnly lazily wisely foolishly beautifully unexpectedly hurriedly wearily bitterly \
    sweetly crossly cheaply expertly barefoot nervously joyfully instantly backwards \
    sideways hungrily honestly cautiously";

/// Verbs whose object is a thing.
pub const V_THING: &str = "carry mend find/found/found hide/hid/hidden lose/lost/lost borrow steal/stole/stolen \
    paint polish sell/sold/sold buy/bought/bought bring/brought/brought drop+ \
    break/broke/broken keep/kept/kept lift wrap+ bury count drag+ fetch admire \
    forget+/forgot/forgotten lend/lent/lent throw/threw/thrown hang/hung/hung lock clean oil \
    tie draw/drew/drawn need want remember trade inspect weigh measure repair decorate \
    examine return scratch push pull toss deliver notice describe inherit varnish stitch \
    unwrap+ unlock label rent ruin balance juggle shake/shook/shaken rattle engrave \
    rearrange misplace collect arrange wash dust hoist unpack sharpen design";

/// Verbs whose object is food.
pub const V_FOOD: &str = "eat/ate/eaten cook peel taste share slice roast steal/stole/stolen \
    bake boil smell salt serve chop+ pickle butter swallow buy/bought/bought sell/sold/sold \
    want order refuse bring/brought/brought fry stir+ weigh nibble devour burn";

/// Verbs whose object is an animal or a person.
pub const V_LIVING: &str = "feed/fed/fed chase follow call watch catch/caught/caught scold see/saw/seen \
    hear/heard/heard rescue teach/taught/taught calm trust love fear greet visit \
    meet/met/met help frighten find/found/found surprise pity tickle admire ignore \
    know/knew/known warn amuse forgive/forgave/forgiven thank insult comfort startle praise \
    outwit+ imitate interrupt wake/woke/woken escort console flatter distract tease applaud \
    blame believe obey question welcome bite/bit/bitten kick hug+ nudge shadow invite serve \
    hire dismiss recognise";

/// Verbs without an object, for people and animals.
pub const V_ALONE: &str = "sing/sang/sung sleep/slept/slept laugh dance wait whisper wander sneeze run+/ran/run \
    snore cry whistle tremble sigh yawn limp grumble complain hide/hid/hidden \
    swim+/swam/swum stand/stood/stood sit+/sat/sat climb fall/fell/fallen rest listen cough \
    shiver stumble dream smile march blush hesitate kneel/knelt/knelt vanish arrive return \
    stare disappear rejoice faint whimper giggle mutter shout argue apologise travel wink \
    nod+ bow curtsy pray meditate gallop hop+ skip+ crawl doze retire sulk work play \
    practise pause wobble chatter";

/// Verbs without an object, for things.
pub const V_OBJECT: &str = "shine/shone/shone fall/fell/fallen rattle vanish creak glow roll crack sink/sank/sunk \
    float tremble burn disappear wobble rust spin+/spun/spun topple whistle \
    freeze/froze/frozen squeak sparkle shatter melt drift wilt shrink/shrank/shrunk sway \
    leak explode hum+ jingle";

/// Forces of nature and the times of year, as subjects.
pub const NATURE: &str = "wind rain moon river tide sun snow fog sea frost storm thunder winter \
    summer night morning evening";

/// Verbs for the forces of nature.
pub const V_NATURE: &str = "rise/rose/risen fall/fell/fallen come/came/come turn change return \
    sing/sang/sung sleep/slept/slept howl linger settle darken brighten whisper vanish";

/// Virtues, vices and other things that cannot be counted.
pub const ABSTRACT: &str = "patience courage luck love truth silence hope wisdom bravery \
    laughter gossip sleep money music hunger pride sorrow thunder honesty friendship mischief \
    poetry gravity bread weather soup memory curiosity envy fairness";

/// A name, whether a woman (`true`), a trade, and a saying repeated throughout.
pub struct Person {
    /// Given name in title case.
    pub name: &'static str,
    /// Pronouns: `she` when true, `he` otherwise.
    pub woman: bool,
    /// Trade, as used in stage directions.
    pub trade: &'static str,
    /// Saying that this person repeats.
    pub saying: &'static str,
}

const fn person(
    name: &'static str,
    woman: bool,
    trade: &'static str,
    saying: &'static str,
) -> Person {
    Person {
        name,
        woman,
        trade,
        saying,
    }
}

/// The company.
pub const PEOPLE: &[Person] = &[
    person(
        "Tamsin",
        true,
        "the ferrywoman",
        "The river knows, and the river never tells.",
    ),
    person(
        "Oswin",
        false,
        "the lamplighter",
        "A small light is still a light.",
    ),
    person(
        "Mirabel",
        true,
        "the baker",
        "Bread first, and trouble afterwards.",
    ),
    person(
        "Hollis",
        false,
        "the clockmaker",
        "Tick and tock, my friends, tick and tock.",
    ),
    person("Dorcas", true, "the weaver", "One thread at a time."),
    person(
        "Perrin",
        false,
        "the shepherd",
        "Count them twice, and then count them again.",
    ),
    person(
        "Bettany",
        true,
        "the beekeeper",
        "Nobody argues with a bee.",
    ),
    person(
        "Corwin",
        false,
        "the miller",
        "Round and round goes the world.",
    ),
    person(
        "Nessa",
        true,
        "a fisher of eels",
        "Salt water cures everything.",
    ),
    person(
        "Ambrose",
        false,
        "the schoolmaster",
        "Write that down, somebody.",
    ),
    person(
        "Ilse",
        true,
        "the potter",
        "What is cracked can still hold flowers.",
    ),
    person(
        "Gilbert",
        false,
        "the mayor",
        "Order, order, and a little more order!",
    ),
    person(
        "Rowena",
        true,
        "the postmistress",
        "Every letter finds its door.",
    ),
    person("Fenn", false, "the tinker", "I can mend that for a penny."),
    person("Una", true, "the gardener", "Wait until the spring."),
    person(
        "Silas",
        false,
        "the sexton",
        "We have time enough, and a spade.",
    ),
    person(
        "Edda",
        true,
        "the carpenter",
        "Measure twice and laugh once.",
    ),
    person("Lucan", false, "the piper", "There is a song about that."),
    person(
        "Hester",
        true,
        "a retired pirate",
        "I have seen worse, and in worse weather.",
    ),
    person(
        "Barnaby",
        false,
        "a very young knight",
        "I am not afraid, not even slightly.",
    ),
];

/// Parts of the names of villages and families: any beginning, middle and end
/// make a name.
pub const NAME_STARTS: &str = "Thorn Marl Wend Brack Hob Pott Lang Ash Elder Fern Gold Hazel \
    Ink Moss Nettle Oak Pebble Rook Sand Tuck Under Wig Cobble Dun Egg Fiddle Goose Hare Ivy \
    Lark Mul Nor Otter Pump Rush Snow Tiddle Wether Apple Bramble";
pub const NAME_MIDDLES: &str = "le er ing en s y ter by na - - - - -";
pub const NAME_ENDS: &str = "wick bury ton ford ham worth well mere wood stead field combe low \
    gate bottom thwaite don ley";
