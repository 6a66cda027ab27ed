import { DomainError } from '../runtime/errors.ts';
import { granteeKinds, type Grant, type Grantee } from './grant-rows.ts';
import type { Grants } from './grants.ts';
import type { KnownPeople } from './known-people.ts';
import { Names, type NameKind } from './names.ts';
import { isDisabled, personIdOf, type People, type Person } from './people.ts';
import type { PersonalTokenLimits } from './personal-limits.ts';
import { parseScopes, type Scope } from './principal.ts';
import { rightOf, type Right } from './rights.ts';
import type { Token } from './token-rows.ts';
import type { Tokens } from './tokens.ts';
import { withPauses } from '../runtime/event-loop.ts';

interface AccessParts {
  grants: Grants;
  people: People;
  knownPeople: KnownPeople;
  personalLimits: PersonalTokenLimits;
  tokens: Tokens;
  now: () => number;
}

/** The question whether `who` has the right `verb` for a name of an account. */
interface AccessQuestion {
  account: { id: number; name: string };
  /** Of a person the ID or the subject, of a group a value of the claim `groups`, of a token its ID, of an account its name. */
  who: Pick<Grantee, 'kind' | 'id'>;
  verb: Scope;
  kind: NameKind;
  name: string;
}

/** A rule, group, person, token or account that has a right, and the reason. */
interface Entitled {
  who: Pick<Grantee, 'id'> & { kind: Grantee['kind'] | 'rule' };
  /** Of a person, and of a token; null for others. */
  name: string | null;
  because: string;
}

interface AccessAnswer {
  allowed: boolean;
  /** The end of a sentence: which rule or grant allows it, or why none does. */
  because: string;
  /** The grants that allow it. */
  grants: readonly Grant[];
}

/** Most people, and most tokens, of which it is told whether they have a right. */
const maxCandidates = 1000;

/** Tells which rule or grant gives a right, or why none does. */
export class Access {
  readonly #parts: AccessParts;

  constructor(parts: AccessParts) {
    this.#parts = parts;
  }

  /** Throws `NotFound` for a token that the account does not have. */
  async explain(question: AccessQuestion): Promise<AccessAnswer> {
    const { account, who } = question;
    const version = await this.#parts.grants.versionOf(account.id);
    const place = { ...account, version };
    if (who.kind === 'token') {
      const token = await this.#parts.tokens.get(account.id, who.id);
      if (!token) throw new DomainError('NotFound', 'This account has no such token. Name its ID, not its value.');
      return this.#ofToken(question, token, place, {
        limits: () => this.#parts.personalLimits.of(account.id),
        person: async (id) => (await this.#parts.knownPeople.find(id))?.person,
      });
    }
    if (who.kind === 'account') return this.#ofAccount(question, place);
    const { people } = this.#parts;
    if (who.kind === 'group') return answer(question, await people.rightsOfGroup(who.id, place));
    const person = await this.#personWith(who.id);
    return this.#ofPerson(question, person, place);
  }

  /**
   * All who have a right: claims in the rules of the settings, then groups, people that the account knows, tokens and accounts. `isComplete` is false if the
   * installation has more people, or the account more tokens, than are examined. Throws `Invalid` for an unknown verb.
   */
  async entitled(
    asked: Omit<AccessQuestion, 'who' | 'verb'> & { verb: string },
  ): Promise<{ entitled: Entitled[]; isComplete: boolean }> {
    const about = { ...asked, verb: parseScopes([asked.verb])[0]! };
    const { grants, people, knownPeople, tokens } = this.#parts;
    const { account } = about;
    const place = { ...account, version: await grants.versionOf(account.id) };
    const found: Entitled[] = people
      .rulesOf(account.name)
      .filter(({ scopes }) => scopes.includes(about.verb))
      .map(({ claim, value }) => ({
        who: { kind: 'rule', id: `${claim}=${value}` },
        name: null,
        because: 'a rule of the settings gives that',
      }));
    const add = (who: AccessQuestion['who'], name: string | null, { allowed, because }: AccessAnswer) =>
      void (allowed && found.push({ who, name, because }));
    const subjects = (await grants.of(account.id, place.version)).subjects;
    for await (const { kind, id } of withPauses(subjects.filter((each) => each.kind === 'group'))) {
      const who = { kind, id };
      add(who, null, answer({ ...about, who }, await people.rightsOfGroup(id, place)));
    }
    const signedIn = await knownPeople.list(maxCandidates);
    const known = signedIn.filter((each) => knownPeople.concerns(each, account.name));
    for await (const { person } of withPauses(known)) {
      const who = { kind: 'person', id: person.subject } as const;
      add(who, person.name, await this.#ofPerson({ ...about, who }, person, place));
    }
    const examined = new Map(known.map(({ id, person }) => [id, person]));
    for await (const { kind, id, issuer } of withPauses(subjects.filter((each) => each.kind === 'person'))) {
      const who = { kind, id };
      // A person with a grant who has not used the account yet.
      if (!examined.has(personIdOf({ issuer: issuer!, subject: id })))
        add(who, null, await this.#ofPerson({ ...about, who }, await people.withSubject(id), place));
    }
    const all = await tokens.list(account.id, maxCandidates);
    const limits = await this.#parts.personalLimits.of(account.id);
    const ofTokens: PersonalFacts = {
      limits: () => Promise.resolve(limits),
      person: async (id) => examined.get(id) ?? (await knownPeople.find(id))?.person,
    };
    for await (const token of withPauses(all)) {
      const who = { kind: 'token', id: token.id } as const;
      add(who, token.name, await this.#ofToken({ ...about, who }, token, place, ofTokens));
    }
    for await (const { kind, id } of withPauses(subjects.filter((each) => each.kind === 'account'))) {
      const who = { kind, id };
      add(who, null, await this.#ofAccount({ ...about, who }, place));
    }
    return { entitled: found, isComplete: signedIn.length < maxCandidates && all.length < maxCandidates };
  }

  /** As `explain`, for the arguments of a command. Throws `Invalid` for an unknown kind or verb. */
  explainTyped(
    about: Pick<AccessQuestion, 'account' | 'kind' | 'name'>,
    { who, id, verb }: { who: string; id: string; verb: string },
  ): Promise<AccessAnswer> {
    const kind = granteeKinds.find((each) => each === who);
    if (kind === undefined) throw new DomainError('Invalid', `${who}: expected one of ${granteeKinds.join(', ')}.`);
    return this.explain({ ...about, who: { kind, id }, verb: parseScopes([verb])[0]! });
  }

  async #ofPerson(question: AccessQuestion, person: Person, place: Place): Promise<AccessAnswer> {
    // Whether a person of other accounts is disabled is not told.
    const found = answer(question, await this.#parts.people.rightsIn({ ...person, disabled: {} }, place));
    return found.allowed && isDisabled(person, place.name) ? refused('the person is disabled here') : found;
  }

  async #ofToken(question: AccessQuestion, token: Token, place: Place, personal: PersonalFacts): Promise<AccessAnswer> {
    const { grants, now } = this.#parts;
    const { who, verb } = question;
    if (token.revokedAt !== null) return refused('the token is revoked');
    if (token.expiresAt !== null && token.expiresAt <= now()) return refused('the token has expired');
    const own: Right = { scopes: token.scopes, patterns: token.patterns };
    if (token.personId === null) {
      const given = (await grants.of(place.id, place.version)).to({ kind: 'token', issuer: null, id: who.id });
      const [made] = giving(question, [own]);
      if (made) return { allowed: true, because: 'the token was made for that', grants: [] };
      return answer(question, given.map(rightOf));
    }
    if (token.refusedBecause === 'no_sign_in') return refused('its person has not signed in for too long');
    if (giving(question, [own]).length === 0) return refused('the personal token was made for other verbs or names');
    const { scopes } = await personal.limits();
    if (scopes?.includes(verb) === false)
      return refused(`the account allows personal tokens only ${scopes.join(', ')}`);
    const person = await personal.person(token.personId);
    return person ? this.#ofPerson(question, person, place) : refused('its person has not signed in for too long');
  }

  async #ofAccount(question: AccessQuestion, place: Place): Promise<AccessAnswer> {
    const { id } = question.who;
    const given = (await this.#parts.grants.of(place.id, place.version)).to({ kind: 'account', issuer: null, id });
    const found = answer(question, given.map(rightOf));
    if (!found.allowed || found.grants.some(({ acceptedAt }) => acceptedAt !== null)) return found;
    return { ...found, allowed: false, because: `the other account has not accepted the grant ${found.grants[0]!.id}` };
  }

  async #personWith(id: string): Promise<Person> {
    const { people, knownPeople } = this.#parts;
    return (await knownPeople.find(id))?.person ?? people.withSubject(id);
  }
}

type Place = AccessQuestion['account'] & { version: number };

/** What limits personal tokens: what their account allows them, and their person by its ID. */
interface PersonalFacts {
  limits(): ReturnType<PersonalTokenLimits['of']>;
  person(id: string): Promise<Person | undefined>;
}

/** Those of `rights` that give what is asked about. */
function giving({ verb, kind, name }: AccessQuestion, rights: readonly Right[]): Right[] {
  const key = name.toLowerCase();
  return rights.filter(
    ({ scopes, patterns }) => scopes.includes(verb) && (!patterns || new Names(patterns).of(kind).includes(key)),
  );
}

function answer(question: AccessQuestion, rights: readonly Right[]): AccessAnswer {
  const given = giving(question, rights);
  const grants = given.flatMap(({ grant }) => grant ?? []);
  if (given.length > grants.length) return { allowed: true, because: 'a rule of the settings gives that', grants };
  const [first] = grants;
  if (first) return { allowed: true, because: `the grant ${first.id} to the ${first.subject.kind} gives that`, grants };
  const others = rights.filter(({ scopes }) => scopes.includes(question.verb)).length;
  return refused(
    others === 0
      ? 'no rule and no grant gives that'
      : `no rule and no grant gives that for this name, and ${others} for others`,
  );
}

function refused(because: string): AccessAnswer {
  return { allowed: false, because, grants: [] };
}
