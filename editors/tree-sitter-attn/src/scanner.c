// All tokens of attn: what src/syntax/lexer.rs and src/syntax/layout.rs of the compiler do, for valid programs. Invalid text is
// one token that no rule has.
//
// Newlines end something only directly inside of braces or outside of all brackets. Which ones do, and which words are
// keywords, is decided by the tokens before and after.

#include "tree_sitter/alloc.h"
#include "tree_sitter/parser.h"

#include <string.h>

enum Token {
    NEWLINE, COMMENT, SKIP, INVALID, DOC, NAME, INTEGER, FLOAT, STRING, ELEM, SEMI, USE, LAYER, MODEL, RULE, TRAIN, STATE, TAP,
    RESET, DIM, STEP, FN, PUB, LET, VAR, FOR, IN, WHILE, IF, ELSE, BREAK, WHERE, AND, OR, NOT, TRUE, FALSE, INF, LPAREN, RPAREN, LBRACKET,
    RBRACKET, LBRACE, MEMBERS, ARMS, RBRACE, LT, ANGLE, GT, LE, GE, EQEQ, NE, EQ, PLUS, MINUS, STAR, SLASH, PERCENT, AT, COMMA, COLON,
    DOT, DOTDOT, ARROW, HASH, NONE
};

// The first token of an item, field or statement.
enum Head { NO_HEAD, OF_LAYER, BEFORE_BLOCK, OF_USE, OTHER };

enum { MAX_LEVELS = 200, MAX_WORD = 16 };

// An open bracket, or the text outside of all brackets.
typedef struct {
    uint8_t open, head, angles, is_attribute, trains;
} Level;

typedef struct {
    // The last token; if it ends a (dotted) name or an integer, the token before that; was it a `>` that closes generics?
    uint8_t previous, before_name, after_generics, depth;
    Level levels[MAX_LEVELS + 1];
} State;

void *tree_sitter_attn_external_scanner_create(void) {
    State *state = ts_calloc(1, sizeof(State));
    state->previous = state->before_name = NONE;
    state->levels[0].open = NONE;
    return state;
}

void tree_sitter_attn_external_scanner_destroy(void *payload) { ts_free(payload); }

unsigned tree_sitter_attn_external_scanner_serialize(void *payload, char *buffer) {
    State *state = payload;
    unsigned length = 4 + (state->depth + 1) * sizeof(Level);
    memcpy(buffer, state, length);
    return length;
}

void tree_sitter_attn_external_scanner_deserialize(void *payload, const char *buffer, unsigned length) {
    State *state = payload;
    memset(state, 0, sizeof(State));
    state->previous = state->before_name = NONE;
    state->levels[0].open = NONE;
    if (length) memcpy(state, buffer, length);
}

static bool is_digit(int32_t c) { return c >= '0' && c <= '9'; }
static bool is_letter(int32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_word(int32_t c) { return is_letter(c) || is_digit(c); }
static bool is_space(int32_t c) { return c == ' ' || c == '\t' || c == '\r' || c == 0xfeff; }

static Level *level(State *state) { return &state->levels[state->depth]; }

static bool has_lines(State *state) {
    uint8_t open = level(state)->open;
    return open == NONE || open == LBRACE || open == MEMBERS || open == ARMS;
}

static bool at_start(State *state) { return has_lines(state) && level(state)->head == NO_HEAD; }

static bool ends_operand(uint8_t token) {
    switch (token) {
    case NAME: case INTEGER: case FLOAT: case STRING: case TRUE: case FALSE: case INF: case RPAREN: case RBRACKET: case RBRACE:
        return true;
    default:
        return false;
    }
}

// Does a statement that ends with this token continue on the next line?
static bool continues(uint8_t token) {
    switch (token) {
    case PLUS: case MINUS: case STAR: case SLASH: case PERCENT: case AT: case EQEQ: case NE: case LT: case STEP: case ANGLE:
    case LE: case GT: case GE: case EQ: case AND: case OR: case NOT: case IN: case DOT: case DOTDOT: case ARROW: case COLON:
    case COMMA: case WHERE:
        return true;
    default:
        return false;
    }
}

static const struct { const char *text; uint8_t token; } WORDS[] = {
    {"fn", FN}, {"pub", PUB}, {"let", LET}, {"var", VAR}, {"for", FOR}, {"in", IN}, {"while", WHILE}, {"if", IF},
    {"else", ELSE}, {"break", BREAK}, {"where", WHERE}, {"and", AND}, {"or", OR}, {"not", NOT}, {"true", TRUE},
    {"false", FALSE}, {"inf", INF}, {"f32", ELEM}, {"bf16", ELEM}, {"f16", ELEM}, {"i8", ELEM}, {"i32", ELEM}, {"i64", ELEM},
    {"bool", ELEM},
};
static const struct { const char *text; uint8_t token; } SOFT[] = {
    {"use", USE}, {"layer", LAYER}, {"model", MODEL}, {"rule", RULE}, {"state", STATE}, {"tap", TAP}, {"reset", RESET},
};

static uint8_t reserved(const char *word) {
    for (unsigned i = 0; i < sizeof(WORDS) / sizeof(*WORDS); i++)
        if (!strcmp(word, WORDS[i].text)) return WORDS[i].token;
    return NAME;
}

static uint8_t soft(const char *word) {
    for (unsigned i = 0; i < sizeof(SOFT) / sizeof(*SOFT); i++)
        if (!strcmp(word, SOFT[i].text)) return SOFT[i].token;
    return NAME;
}

static void advance(TSLexer *lexer) { lexer->advance(lexer, false); }

static void spaces(TSLexer *lexer) {
    while (is_space(lexer->lookahead)) advance(lexer);
}

static void line(TSLexer *lexer) {
    while (!lexer->eof(lexer) && lexer->lookahead != '\n') advance(lexer);
}

// Reads a word; letters beyond the buffer are dropped, as no keyword is that long.
static void word(TSLexer *lexer, char *buffer) {
    unsigned length = 0;
    for (; is_word(lexer->lookahead); advance(lexer))
        if (length < MAX_WORD - 1) buffer[length++] = (char)lexer->lookahead;
    buffer[length] = 0;
}

// The kind of the token ahead. Only as much of it is read as that takes: a name is NAME even if it is a soft keyword, and an
// operator that cannot begin a line is STAR.
static uint8_t ahead(TSLexer *lexer, char *buffer) {
    int32_t c = lexer->lookahead;
    buffer[0] = 0;
    if (lexer->eof(lexer)) return NONE;
    if (is_letter(c)) {
        word(lexer, buffer);
        return reserved(buffer);
    }
    if (is_digit(c)) return INTEGER;
    advance(lexer);
    int32_t d = lexer->lookahead;
    switch (c) {
    case '\n': return NEWLINE;
    case '(': return LPAREN;
    case '{': return LBRACE;
    case '}': return RBRACE;
    case '#': return HASH;
    case '-': return d == '>' ? ARROW : MINUS;
    case '+': return PLUS;
    case '>': return d == '=' ? STAR : GT;
    case '.': return d == '.' ? DOTDOT : STAR;
    case '!': return d == '=' ? STAR : INVALID;
    case '*': case '/': case '%': case '@': case '<': case '=': return STAR;
    default: return INVALID;
    }
}

// Goes to the next token that is not a comment, nor, if these are not kept, documentation.
static bool to_token(TSLexer *lexer, bool keeps_documentation) {
    for (;;) {
        while (is_space(lexer->lookahead) || lexer->lookahead == '\n') advance(lexer);
        if (lexer->lookahead != '/') return false;
        advance(lexer);
        if (lexer->lookahead != '/') return true;
        advance(lexer);
        if (keeps_documentation && lexer->lookahead == '/') {
            advance(lexer);
            if (lexer->lookahead != '/') return true;
        }
        line(lexer);
    }
}

// Does the newline that was just read end something?
static bool is_significant(State *state, TSLexer *lexer) {
    Level *now = level(state);
    if (!has_lines(state) || now->head == NO_HEAD || state->previous == NONE || state->previous == DOC) return false;
    char buffer[MAX_WORD];
    // A line that begins with a slash is no more valid after documentation than after a newline.
    uint8_t next = to_token(lexer, true) ? DOC : ahead(lexer, buffer);
    if (next == NONE || next == RBRACE) return false;
    bool begins = next == LET || next == VAR || next == FOR || next == WHILE || next == BREAK || next == FN || next == PUB;
    if (!begins && continues(state->previous) && !state->after_generics) return false;
    switch (next) {
    case ELSE: case ARROW:
        return false;
    case WHERE:
        spaces(lexer);
        if (lexer->lookahead != '(') return false;
        break;
    case LBRACE:
        if (((now->head == OF_LAYER || now->head == BEFORE_BLOCK) && state->previous != RBRACE) || state->previous == ELSE)
            return false;
        break;
    case GT:
        if (now->angles) return false;
        break;
    default:
        break;
    }
    bool is_operator = next == STAR || next == GT || next == AND || next == OR;
    if (!is_operator && now->open == NONE) {
        bool begins_item = next == FN || next == PUB || next == HASH || next == DOC || (next == NAME && soft(buffer) != NAME);
        return begins_item || state->previous == RBRACE || now->head == OF_USE;
    }
    return true;
}

// Is the documentation that was just read dropped: in code, within a line, or before nothing?
static bool is_lost(State *state, TSLexer *lexer) {
    if (level(state)->open == LBRACE || (has_lines(state) && !at_start(state))) return true;
    return !to_token(lexer, false) && (lexer->eof(lexer) || lexer->lookahead == '}');
}

static uint8_t number(TSLexer *lexer, bool is_part) {
    char text[64];
    unsigned length = 0;
    bool is_hex = false, has_point = false, has_exponent = false, is_fine = true;
    for (;;) {
        int32_t c = lexer->lookahead;
        if (c == '.' && !has_point && !has_exponent && !is_hex && !is_part) {
            lexer->mark_end(lexer);
            advance(lexer);
            if (!is_digit(lexer->lookahead)) break;
            has_point = true;
            continue;
        }
        if ((c == '+' || c == '-') && has_exponent && (text[length - 1] == 'e' || text[length - 1] == 'E')) {
            // The sign of an exponent.
        } else if (!is_word(c)) {
            lexer->mark_end(lexer);
            break;
        } else if (c == '_') {
            advance(lexer);
            continue;
        } else if (length == 1 && text[0] == '0' && (c == 'x' || c == 'X')) {
            is_hex = true;
        } else if (is_hex) {
            is_fine &= is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f');
        } else if ((c == 'e' || c == 'E') && !has_exponent) {
            has_exponent = true;
        } else {
            is_fine &= is_digit(c);
        }
        if (length < sizeof(text) - 1) text[length++] = (char)c;
        advance(lexer);
    }
    bool has_digits = length && (is_hex ? length > 2 : is_digit(text[length - 1]));
    if (!is_fine || !has_digits) return INVALID;
    return has_point || has_exponent ? FLOAT : INTEGER;
}

static uint8_t string(TSLexer *lexer) {
    bool is_fine = true;
    for (advance(lexer); lexer->lookahead != '"'; advance(lexer)) {
        if (lexer->lookahead == '\\') {
            advance(lexer);
            int32_t c = lexer->lookahead;
            is_fine &= c == 'n' || c == 't' || c == '\\' || c == '"';
        }
        if (lexer->eof(lexer) || lexer->lookahead == '\n') return INVALID;
    }
    advance(lexer);
    return is_fine ? STRING : INVALID;
}

// An operator or bracket.
static uint8_t symbol(TSLexer *lexer) {
    int32_t c = lexer->lookahead;
    advance(lexer);
    int32_t d = lexer->lookahead;
    uint8_t pair = NONE;
    switch (c) {
    case '(': return LPAREN;
    case ')': return RPAREN;
    case '[': return LBRACKET;
    case ']': return RBRACKET;
    case '{': return LBRACE;
    case '}': return RBRACE;
    case ';': return SEMI;
    case '#': return HASH;
    case ',': return COMMA;
    case '<': pair = d == '=' ? LE : NONE; if (pair == NONE) return LT; break;
    case '>': pair = d == '=' ? GE : NONE; if (pair == NONE) return GT; break;
    case '=': if (d == '>') return INVALID; if (d != '=') return EQ; pair = EQEQ; break;
    case '!': if (d != '=') return INVALID; pair = NE; break;
    case '-': if (d == '=') return INVALID; if (d != '>') return MINUS; pair = ARROW; break;
    case '.': if (d != '.') return DOT; pair = DOTDOT; break;
    case '*': return d == '*' || d == '=' ? INVALID : STAR;
    case '+': return d == '=' ? INVALID : PLUS;
    case '/': return d == '=' || d == '*' ? INVALID : SLASH;
    case '@': return d == '=' ? INVALID : AT;
    case '%': return d == '=' ? INVALID : PERCENT;
    case ':': return d == '=' || d == ':' ? INVALID : COLON;
    default: return INVALID;
    }
    advance(lexer);
    // `===` and `!==`
    return (pair == EQEQ || pair == NE) && lexer->lookahead == '=' ? INVALID : pair;
}

// Is it the name of a declaration or a type that ends here?
static bool in_type_or_header(State *state) {
    switch (state->before_name) {
    case LAYER: case MODEL: case RULE: case FN: case COLON: case ARROW: case LBRACKET: return true;
    default: return false;
    }
}

// Does an integer lie ahead, rather than another number?
static bool is_integer(TSLexer *lexer) {
    if (!is_digit(lexer->lookahead)) return false;
    char buffer[MAX_WORD];
    word(lexer, buffer);
    bool is_hex = buffer[0] == '0' && (buffer[1] | 32) == 'x';
    if (!is_hex && strpbrk(buffer, "eE")) return false;
    if (lexer->lookahead == '.') {
        advance(lexer);
        return !is_digit(lexer->lookahead);
    }
    return true;
}

// The token that a word is, where it stands.
static uint8_t keyword(State *state, TSLexer *lexer, const char *buffer) {
    char next[MAX_WORD];
    bool touches = lexer->lookahead == '(';
    spaces(lexer);
    int32_t c = lexer->lookahead;
    bool before_name = is_letter(c) && ahead(lexer, next) == NAME;
    if (at_start(state)) {
        uint8_t token = soft(buffer);
        bool is_header = level(state)->open == NONE && (token == USE || token == LAYER || token == MODEL);
        if (token != NAME && (is_header || before_name)) return token;
    }
    if (!strcmp(buffer, "train") && before_name) return TRAIN;
    if (!strcmp(buffer, "dim") && state->previous == LET && before_name) return DIM;
    if (!strcmp(buffer, "step") && level(state)->open == LBRACKET) {
        bool begins_operand = (c == '(' && !touches) || is_integer(lexer) || (before_name && strcmp(next, "step"));
        if (ends_operand(state->previous) || (state->previous == DOTDOT && begins_operand)) return STEP;
    }
    return NAME;
}

// The token that `<` after a name is; counts it if it opens generics.
static uint8_t angle(State *state, TSLexer *lexer) {
    char buffer[MAX_WORD];
    spaces(lexer);
    uint8_t next = ahead(lexer, buffer);
    bool is_elem = next == ELEM;
    if (next == NAME && !in_type_or_header(state)) {
        spaces(lexer);
        if (lexer->lookahead == '>') {
            advance(lexer);
            spaces(lexer);
            is_elem = lexer->lookahead == '(';
        }
    }
    if (is_elem || level(state)->angles || in_type_or_header(state)) level(state)->angles++;
    return is_elem ? ANGLE : LT;
}

static uint8_t head_of(uint8_t token) {
    switch (token) {
    case LAYER: case MODEL: case RULE: return OF_LAYER;
    case FN: case PUB: case IF: case FOR: case WHILE: return BEFORE_BLOCK;
    case USE: return OF_USE;
    default: return OTHER;
    }
}

// Takes a token into account; returns it, or another one that it is here.
static uint8_t take(State *state, uint8_t token) {
    bool was_generics = false;
    if (token == LPAREN || token == LBRACKET || token == LBRACE) {
        if (state->depth == MAX_LEVELS) return INVALID;
        if (token == LBRACE && level(state)->head == OF_LAYER) token = MEMBERS;
        else if (token == LBRACE && level(state)->trains) token = ARMS;
        if (token == ARMS) level(state)->trains = 0;
        if (at_start(state)) level(state)->head = OTHER;
        Level opened = {token, NO_HEAD, 0, state->previous == HASH, 0};
        state->levels[++state->depth] = opened;
    } else if (token == RPAREN || token == RBRACKET || token == RBRACE) {
        uint8_t open = level(state)->open;
        bool fits = token == RPAREN ? open == LPAREN : token == RBRACKET ? open == LBRACKET : open == LBRACE || open == MEMBERS || open == ARMS;
        if (!fits) return INVALID;
        bool is_attribute = level(state)->is_attribute;
        state->depth--;
        if (is_attribute) level(state)->head = NO_HEAD;
    } else if (token != SEMI && token != NEWLINE && token != DOC) {
        if (at_start(state)) level(state)->head = head_of(token);
        if (token == TRAIN) level(state)->trains = 1;
        if (token == GT && level(state)->angles) {
            level(state)->angles--;
            was_generics = true;
        }
    }
    Level *now = level(state);
    bool ends = (token == NEWLINE || token == SEMI) && has_lines(state);
    if (token == COMMA && (now->open == MEMBERS || now->open == ARMS))
        ends = !now->angles && (now->head != BEFORE_BLOCK || state->previous == RBRACE);
    if (ends) {
        now->head = NO_HEAD;
        now->angles = now->trains = 0;
    }
    if (token == INTEGER || (token == NAME && state->previous != DOT)) state->before_name = state->previous;
    state->previous = token;
    state->after_generics = was_generics;
    return token;
}

bool tree_sitter_attn_external_scanner_scan(void *payload, TSLexer *lexer, const bool *valid) {
    (void)valid;
    State *state = payload;
    bool touches = true;
    while (is_space(lexer->lookahead)) {
        lexer->advance(lexer, true);
        touches = false;
    }
    int32_t c = lexer->lookahead;
    if (lexer->eof(lexer)) return false;
    uint8_t token;
    char buffer[MAX_WORD];
    if (c == '\n') {
        advance(lexer);
        lexer->mark_end(lexer);
        bool is_end = is_significant(state, lexer);
        lexer->result_symbol = is_end ? take(state, NEWLINE) : SKIP;
        return true;
    }
    if (is_letter(c)) {
        word(lexer, buffer);
        lexer->mark_end(lexer);
        // A letter of another alphabet is part of no name.
        token = lexer->lookahead >= 0x80 ? INVALID : reserved(buffer);
        // Methods of other libraries: the type checker says what to write.
        if ((state->previous == DOT && (token == VAR || token == WHERE)) || (token == VAR && !at_start(state))) {
            spaces(lexer);
            if ((token == VAR && state->previous == DOT) || lexer->lookahead == '(') token = NAME;
        } else if (token == NAME) {
            token = keyword(state, lexer, buffer);
        }
    } else if (is_digit(c)) {
        token = number(lexer, state->previous == DOT && touches);
    } else if (c == '"') {
        token = string(lexer);
        lexer->mark_end(lexer);
    } else {
        token = symbol(lexer);
        lexer->mark_end(lexer);
        if (token == SLASH && lexer->lookahead == '/') {
            advance(lexer);
            bool is_documentation = lexer->lookahead == '/';
            if (is_documentation) {
                advance(lexer);
                is_documentation = lexer->lookahead != '/';
            }
            line(lexer);
            lexer->mark_end(lexer);
            bool is_comment = !is_documentation || is_lost(state, lexer);
            lexer->result_symbol = is_comment ? COMMENT : take(state, DOC);
            return true;
        }
        // `1.` is a number that lacks a digit, but `net.1.weight` is a path.
        if (token == DOT && touches && state->previous == INTEGER && state->before_name != DOT && !is_word(lexer->lookahead))
            token = INVALID;
        if (token == LT && state->previous == NAME) token = angle(state, lexer);
        if (token == SEMI && at_start(state)) token = SKIP;
    }
    lexer->result_symbol = token == SKIP ? SKIP : take(state, token);
    return true;
}
