//! Templates of the generated play.
//!
//! `{a|b}` stands for one of its alternatives, chosen evenly; `[name]` is a
//! slot that the writer fills (see `Play::slot`). A capital letter is put at
//! the start of every sentence and `a` becomes `an` where needed, after filling.

/// One exchange: a question or an opening, what the person addressed says to
/// it, and what the first speaker says to that.
pub struct Exchange {
    /// Spoken by A to B.
    pub open: &'static [&'static str],
    /// Spoken by B to A.
    pub reply: &'static [&'static str],
    /// Spoken by A to B; may be left out.
    pub close: &'static [&'static str],
}

const fn exchange(
    open: &'static [&'static str],
    reply: &'static [&'static str],
    close: &'static [&'static str],
) -> Exchange {
    Exchange { open, reply, close }
}

/// Shared endings of an exchange.
const WELL: &[&str] = &[
    "{so|and yet|but} [past].",
    "{I see|well then|so be it|fair enough}. [fut].",
    "{I am glad to hear it|that is good news|what a pity|how strange}. [past].",
    "{I did not know that|nobody told me}. I {thought|hoped|believed} that [past].",
    "then [fut], {and|but|because} [pres].",
    "{thank you|bless you}, [you]. [fut].",
    "you {always|never|often} say so, {but|and} [past].",
];

/// Everything that the company may talk about.
pub const EXCHANGES: &[Exchange] = &[
    // Where a thing is.
    exchange(
        &[
            "{[you], |tell me, [you], |}{where [is]|have you seen|who took|do you know where I left} [T]?",
            "I {cannot find|have lost|am looking for} [T]. {Where [is] [it]|Did you see [them]|Who has [them]}, [you]?",
        ],
        &[
            "[T]? {I|[who]|[trade]} {left|saw|found|hid} [them] [place], {when|while|before|after} [past].",
            "[it] [was] [place] [ago], {and|but} [past].",
            "{look|try looking} [place]. [who] {always|never|usually} keeps [them] there, because [pres].",
            "I {have not seen|never saw} [T], {though|but} I {did see|have seen} [any] [place].",
            "[trade] [vd] [them] [ago]. Since then [it] [has] been {[place]|missing|mine|[adj]}.",
        ],
        WELL,
    ),
    // How many.
    exchange(
        &[
            "how many [ts] {did [who] bring|are left|have we now|are there [place]}{, [you]|}?",
            "[you], have you counted the [ts]{|, as I asked| again}?",
        ],
        &[
            "[d]. {There were|we had|I counted} [n] [ts] {yesterday|this morning|[ago]}, but [trade] [vd] [m].",
            "{only|just|exactly|about} [n]. [m] of them [mis] [adj], {and|but} [d] [dis] [adj].",
            "[n] [ts], if you count {the one|the two} [place]. [who] [vd] [m], so [d] [dis] left.",
        ],
        &[
            "[d]? {I wanted|I hoped for|I needed} [n]!",
            "[d] {is|will be} {enough|too many|not enough|plenty}. [fut].",
            "[m] and [d] make [n]. {That is right|Good|I can count too}. [past].",
        ],
    ),
    // A question of fact about somebody's doing.
    exchange(
        &[
            "{[you], |tell me, |}[Q]?",
            "{I wonder, [you]|is it true, [you]|tell me the truth}: [Q]?",
        ],
        &[
            "{yes|of course|certainly}, [Qyes]. [Qfull] {[place]|[when]|because [past]}.",
            "no, [Qno]. {I am sure of it|you must be dreaming|ask [who]}: [past].",
            "{perhaps [Qyes], perhaps [Qno]|I believe [Qyes]|I doubt it}. {All I know is that|But} [past].",
            "{why do you ask|who told you that}? [Qno]{, and [who] knows it|}. It was [trade] who [vdone].",
        ],
        WELL,
    ),
    // Why.
    exchange(
        &[
            "{[you], |}why [Q]?",
            "[Q]? {And why|For what reason}, [you]?",
        ],
        &[
            "because [past]{, and because [past]|, and [pres]|}.",
            "[Qsub] {had no choice|had to|wanted to|was told to by [who]}, {because|since} [past].",
            "{who can say why?|nobody knows why.|do not ask me why.} [who] {says|thinks|swears} that [past].",
        ],
        WELL,
    ),
    // Wishes and bargains.
    exchange(
        &[
            "{will you|would you|could you} [vb] [T] for me, [you]? {I will give you|You may have} [athing].",
            "[you], I {would give|offer you} [n] {pennies|[foods]|[things]} for [T].",
            "{lend|give|sell} me [T], [you], {and|or} [fut].",
        ],
        &[
            "for [n] {pennies|[foods]}? {Make it|I want} [n2], and [T] will be yours.",
            "{gladly|with pleasure|of course}. I will [vb] [them] {[soon]|when [pres]|before [pres]}.",
            "never! {I need [them] myself|[it] [is] too [adj]|I promised [them] to [who]}, {and|because} [past].",
            "what would I do with {a [t1]|[n] [ts]}? No, I would rather have [any].",
        ],
        &[
            "{done|agreed|you drive a hard bargain}. {Here is my hand|[fut]}.",
            "[who] would [vb] [them] for {nothing|[n] pennies|a song}!",
            "{think about it|ask yourself}, [you]: {what if|what will happen when} [pres]?",
        ],
    ),
    // Plans and meetings.
    exchange(
        &[
            "{meet me|wait for me|let us meet} [place] [soon], [you]{, and bring [athing]|}.",
            "what will you do [soon], [you]?",
            "are you coming to {the fair|the wedding|the feast|supper|the dance} [soon], [you]?",
        ],
        &[
            "I will {be|wait for you|stand} [place] {at {[hour] o'clock|[hour]:[minute]}|[soon]}{, with [athing]|}.",
            "[soon] I must {[vbany]|[vbany]}, {and then|but after that} [fut].",
            "only if {you bring|[who] brings} [athing]. {Otherwise|If not,} [fut].",
            "I {cannot|would like to, but I cannot}. [fut], and [who] {needs|expects|wants} me [place].",
        ],
        &[
            "at {[hour] o'clock|[hour]:[minute]}, then, {and do not be late|and not a minute later|and mind [animal]}.",
            "{good|wonderful|splendid}! {And|But} remember [T].",
            "and if [pres]? {What then|Who will help us}?",
            "{bring [any] too|do not tell [who]|leave [T] behind}, {or|and} [fut].",
        ],
    ),
    // Opinions of somebody absent.
    exchange(
        &[
            "what do you think of {[who]|[trade]}, [you]?",
            "[who] is {too|so|very} [mood] {today|lately|these days}, {is [he] not|do you not think so}?",
            "I {met|saw|heard} [who] [place]{| [ago]}. {[he] was|They say that [he] is} [mood]{.|, and [mood] too.}",
        ],
        &[
            "[he] is [mood] {and|but} [mood]. {When|Before|After} [past], [he] {laughed|wept|said nothing|went home}.",
            "{I like|I trust|I pity|I cannot understand} [him]. [he] once [vdone], {and|but} [he] never [vdone].",
            "[his] {mother|sister|grandmother} was more [mood] still: she [vdone] {every|one} {winter|summer|spring}.",
            "{ask|better ask} [trade]. [he] {owes|owed|promised} me [athing].",
        ],
        WELL,
    ),
    // Proverbs.
    exchange(
        &[
            "{my grandmother used to say|they say|the old people say|I always say} that [proverb].",
            "[you], do you believe that [proverb]?",
        ],
        &[
            "and [trade] {used to say|says|would answer} that [proverb].",
            "{that is true|that is nonsense|who can tell}. {[abs] is|nothing is} {better|worse|heavier|rarer} than [abs].",
            "{where I come from|at home|in my family}, we say that [proverb].",
        ],
        &[
            "{how wise|how deep|well said}. {And yet|Still,} [past].",
            "{a proverb|a saying} is like [athing]: {[adj] and [adj]|everybody has one|better when shared}.",
            "{[saying]|that reminds me}. [past].",
        ],
    ),
    // Riddles.
    exchange(
        &[
            "{here is a riddle|guess this|answer me this}, [you]: what is {as [tadj] as [athing]|[tadj] and [tadj]}, but never [vnoun]?",
            "what do you call [aanimal] {that|which} [vdone], [you]?",
        ],
        &[
            "{[athing]|[aanimal]|[afood]}? {No, wait|No|Let me think}: [athing]!",
            "I {give up|do not know|have no idea}. {Is it|Could it be} {[athing]|[aanimal]|[abs]}?",
            "{[abs]|your [t1]|[who]}, {of course|naturally}.",
        ],
        &[
            "{right|wrong|nearly right|not at all}! It {is|was} {[abs]|[athing]|[aanimal]}{, because [pres]|}.",
            "{nobody|only [who]} {ever guesses|guessed} it. The answer is {[abs]|[athing]|[afood]}.",
        ],
    ),
    // Songs.
    exchange(
        &[
            "{sing|give us a song|sing something}, [you]{, about [animal]|, before [pres]|}.",
            "[you], do you {remember|know} the song {about [T]|that [who] sang [ago]}?",
        ],
        &["[couplet]", "[couplet]\n[couplet]"],
        &[
            "{again|bravo|more|too loud}! [past] {when you sang|while you sang}.",
            "I {never liked|always liked|wept at|had forgotten} the part about [animal].",
            "[who] sings it {better|worse|[adv]}, {with|without} [athing].",
        ],
    ),
    // Stories.
    exchange(
        &[
            "{once upon a time|long ago|one [season]}, [atrade] [vdone]. {Then|The next day|In the end} [heshe] [vdone], {and|but} [past].",
            "did I {ever tell you|tell you} how [who] [vdone]{, [you]|}? It was [ago], {and|when} [past].",
        ],
        &[
            "and {what happened then|how did it end|what became of [T]}, [you]?",
            "{I have heard|everybody knows|I love} that story. {In mine|In the end} [trade] [vdone] {and|but} [vdone].",
            "{I do not believe a word of it|that cannot be true|impossible}! [who] {never|surely never} [vdone].",
        ],
        &[
            "[heshe] [vdone], and {nobody|only [who]} {noticed|complained|believed it}.",
            "{it ended|it all ended} {well|badly|[place]}: [past], and [past].",
            "{every word is true|you may ask [who]}. [heshe] [vdone] {[place]|[ago]}.",
        ],
    ),
    // Quarrels.
    exchange(
        &[
            "{I hear that you|[trade] says that you|you} have [vn] [T], [you]{!|, and not for the first time!}",
            "why have you [vn] [T], [you]?",
            "{[T] [is] [adj]|look at [T]}! {Was it you, [you]|Who did this}?",
        ],
        &[
            "I? I have never [vn] [T]. {It was|Blame} {[who]|[trade]|[animal]}.",
            "{I am sorry|forgive me}. {I thought|I believed} that [it] [was] {[adj]|mine|[who]'s}.",
            "and what if I did? you [youdid] [ago], and {nobody|I never} complained.",
        ],
        &[
            "{then|in that case,} [fut], {or|and} [fut].",
            "you {are|were always} as [mood] as [aanimal]!",
            "{enough|peace}! {[saying]|[past], and we are still friends}.",
        ],
    ),
    // Weather and omens.
    exchange(
        &[
            "{look|listen|do you see}, [you]: [nature]. {What does it mean|Will it last}?",
            "[nature]{, and [nature]|}. {I do not like it|I like that|Is that a good sign}, [you]?",
        ],
        &[
            "{it means that|when [nature],} [fut].",
            "[ago] it was the same, and [past].",
            "{never mind that|let it}. {Have you [vn] [T]|Where is [who]}?",
        ],
        WELL,
    ),
];

/// Extra sentences, added to some speeches.
pub const REMARKS: &[&str] = &[
    "[past].",
    "[past], {and|but|so} [past].",
    "[pres].",
    "{I {think|hope|fear}|they say} that [pres].",
    "[who] {told me|wrote to me|whispered} that [past].",
    "{if|when|unless} [pres], [fut].",
    "{after|before|while|because|although} [past], [past].",
    "{who|who else} [vdone]?",
    "[saying].",
    "[nature], {and|but} [pres].",
    "{what|such} [amood] [animal1]!",
    "[fut].",
    "I {never|once|often} [vdone].",
    "{not [athing], not [afood], but [aanimal]|[athing], [athing] and [afood]}!",
];

/// Proverbs.
pub const PROVERBS: &[&str] = &[
    "[amood] {[animal1]|[trade1]} {never|always|seldom} {[vspres]|finds [athing]}",
    "{[abs] is|there is no [abs] without} {[abs]|[athing]}",
    "one [t1] {is worth|is better than} [n] [things]",
    "whoever [vspres] will {never|one day} [vbany]",
    "no [trade1] {should|can} [vbany] {[place]|and [vbany]}",
];

/// Ways of turning to a third person.
pub const HANDOVERS: &[&str] = &[
    "{and you|what do you say|am I right}, [third]?",
    "ask [third].",
    "[third] {knows|will tell you|saw it too}.",
    "{is that not so|do you agree}, [third]?",
];

/// Line endings of songs that rhyme with each other.
pub const RHYMES: &[&[&str]] = &[
    &[
        "under the moon",
        "to a merry old tune",
        "with a silver spoon",
        "with a bat and a loon",
        "too late or too soon",
        "one afternoon",
    ],
    &[
        "all the long day",
        "and then ran away",
        "in the month of May",
        "on a bundle of hay",
        "with nothing to say",
        "by the edge of the bay",
    ],
    &[
        "out in the rain",
        "again and again",
        "and home down the lane",
        "for a penny of gain",
        "without any pain",
    ],
    &[
        "all night",
        "by candle light",
        "with all its might",
        "to our delight",
        "and out of sight",
        "and that was right",
    ],
    &[
        "by the sea",
        "for you and for me",
        "with a cup of tea",
        "at half past three",
        "and felt quite free",
        "under the apple tree",
    ],
    &[
        "on the stair",
        "without a care",
        "for a cake and a pear",
        "in the cold night air",
        "on the way to the fair",
        "and did not dare",
    ],
    &[
        "in the snow",
        "a long time ago",
        "with a needle to sew",
        "where the willows grow",
        "and said hello",
        "to and fro",
    ],
    &[
        "on the ground",
        "round and round",
        "without a sound",
        "for the price of a pound",
        "and was never found",
    ],
    &[
        "in the town",
        "up and down",
        "with a frown",
        "in a borrowed gown",
        "for a golden crown",
    ],
    &[
        "of gold",
        "as the bells were tolled",
        "in the bitter cold",
        "before we grew old",
        "and could not be told",
    ],
];

/// Time of something past; `[hour]` is a number.
pub const PAST_TIMES: &[&str] = &[
    "yesterday",
    "last {night|week|winter|summer|spring|autumn|market day}",
    "[n] {days|weeks|years|nights} ago",
    "this morning",
    "at {[hour] o'clock|[hour]:[minute]}",
    "on {Monday|Tuesday|Wednesday|Thursday|Friday|Sunday}",
    "before {breakfast|supper|the harvest|the flood|sunrise}",
    "after {breakfast|supper|the storm|the wedding}",
    "when I was {young|a child|[n]}",
];

/// Time of something to come.
pub const SOON: &[&str] = &[
    "tomorrow",
    "tonight",
    "{next|this} {week|winter|summer|spring|autumn|market day}",
    "at {[hour] o'clock|[hour]:[minute]}",
    "before {noon|supper|sunrise|the harvest}",
    "on {Monday|Tuesday|Wednesday|Thursday|Friday|Sunday}",
    "in [n] {days|weeks|minutes}",
    "after {the fair|the storm|breakfast|supper}",
];

/// Times of day in scene headings.
pub const HEADINGS: &[&str] = &[
    "at dawn",
    "at noon",
    "at dusk",
    "at midnight",
    "in the early morning",
    "late in the evening",
    "in the afternoon",
    "before breakfast",
    "a little after [hour] o'clock",
    "on a {market|rainy|windy|foggy} day",
];

/// Third lines of a song.
pub const BURDENS: &[&str] = &[
    "with a {hey|ho|fiddle} and a {hey|ho|drum} and a {hey|ho},",
    "oh, {turn|row|blow} the {wheel|boat|horn}, oh, {turn|row|blow},",
    "and {nobody|everybody} knew of the [t1],",
    "one for the [trade1] and one for the [animal1],",
    "sing {low|high|sweet}, [you], sing {low|high|sweet},",
];

/// Other lines of a song, to which an ending may be added.
pub const SONG_LINES: &[&str] = &[
    "the [animal1] and the [animal1] {danced|waited|sang|slept|laughed}",
    "a [trade1] {came|went|sailed|rode} with a [t1]",
    "my {love|mother|brother|captain} {was|sat} [mood]",
    "there {was|lived} [amood] [trade1] {once|who sang}",
    "oh, {bring|lend|give} me [small] [things]",
    "the [trade1] {lost|found|sold} [small] [foods]",
];

/// What those who enter bring along.
pub const COMPANY: &str =
    "{, {carrying|sharing} {[athing]|[afood]}|, looking for [any]|, followed by [aanimal]|}";
