import type { Database } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import { recordEvent } from '../events/record.ts';
import { bundleEvent } from './bundles.ts';
import { bundleInvalid } from './format.ts';
import { isSealedBy, type Envelope, type PublicKey } from './keys.ts';
import {
  keyStatementType,
  readKeyStatement,
  revocationType,
  signingRoles,
  type KeyStatement,
  type Revocation,
} from './statements.ts';
import { statementType } from './write.ts';

/** What a key may sign: bundles, receipts or both, each with statements about new keys; or only revocations. */
export const roles = [...signingRoles, 'revoke'] as const;
export type Role = (typeof roles)[number];
type Purpose = 'bundles' | 'receipts' | 'new keys' | 'revocations';

/** A public key that is trusted. Times are in milliseconds since 1970 UTC. */
export interface TrustedKey {
  id: string;
  name: string;
  role: Role;
  pem: string;
  addedAt: number;
  /** The key counts until then; null without an end. */
  expiresAt: number | null;
  /** The ID of the key because of whose statement it is trusted; null if its public key was given. */
  vouchedBy: string | null;
}

/** A key that is never trusted again. */
interface RevokedKey {
  id: string;
  /** Its name while it was trusted here; null if it was not. */
  name: string | null;
  /** The ID of the key that signed the revocation. */
  revokedBy: string;
  /** Milliseconds since 1970 UTC. */
  revokedAt: number;
}

/** How a key is to be trusted. */
interface Terms {
  name: string;
  role?: Role | undefined;
  /** Milliseconds since 1970 UTC. */
  expiresAt?: number | undefined;
}

/** A new key that a bundle announces. It is not trusted by that. */
export interface AnnouncedKey {
  /** The signed statement, which an operator can trust. */
  statement: string;
  /** null if the statement cannot be read. */
  id: string | null;
  /** The name of the trusted key that signed it; null if there is none. */
  signer: string | null;
  /** Why it cannot be trusted here; null if it can. */
  refused: string | null;
}

/** What a revocation did. */
interface Revoked {
  key: RevokedKey;
  /** The key that signed it. */
  signer: TrustedKey;
  /** Whether it was revoked before. */
  isRepeated: boolean;
  /** Keys that are trusted because the revoked one signed so. */
  vouched: readonly TrustedKey[];
}

const columns = `id, name, role, public_key AS pem, added_at AS addedAt, expires_at AS expiresAt, vouched_by AS vouchedBy`;
const revokedColumns = 'id, name, revoked_by AS revokedBy, revoked_at AS revokedAt';
/** The most keys that are trusted, and that are revoked. */
const maxKeys = 100;
const maxRevoked = 1000;

/** The keys whose signatures this installation accepts, and those that it never accepts again. */
export class TrustedKeys {
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  list(): Promise<TrustedKey[]> {
    // A key that was added while it was revoked does not count.
    return this.#database.select<TrustedKey>(
      `SELECT ${columns} FROM bundle_keys k
       WHERE NOT EXISTS (SELECT 1 FROM bundle_revocations r WHERE r.id = k.id) ORDER BY name, id`,
    );
  }

  revoked(): Promise<RevokedKey[]> {
    return this.#database.select<RevokedKey>(
      `SELECT ${revokedColumns} FROM bundle_revocations ORDER BY revoked_at DESC, id LIMIT ${maxRevoked}`,
    );
  }

  /** Adds a key, or changes it. Throws `Invalid` for a revoked one, and `QuotaExceeded` if there are too many. */
  async add(key: PublicKey, { name, role = 'both', expiresAt }: Terms): Promise<TrustedKey> {
    return this.#write(key, { name, role, expiresAt: expiresAt ?? null, vouchedBy: null });
  }

  /**
   * Adds a new key, because a trusted key has signed so. Resolves to both. `terms` may narrow what the statement says. Throws `Invalid`, `Denied` if
   * the statement is not one of a key that is trusted for it, and `QuotaExceeded`.
   */
  async addSigned(
    statement: KeyStatement,
    { name, role: asked, expiresAt }: Terms,
  ): Promise<{ key: TrustedKey; signer: TrustedKey }> {
    const { signer, role } = await this.#checked(statement);
    const { key, expiresAt: end } = statement;
    if (asked !== undefined && !includes(role, asked))
      throw bundleInvalid(`${signer.name} has signed that this key may sign ${role}, so its role cannot be ${asked}`);
    const ends = [end, expiresAt].filter((each) => typeof each === 'number');
    const terms = { name, role: asked ?? role, expiresAt: ends.length === 0 ? null : Math.min(...ends) };
    return { key: await this.#write(key, { ...terms, vouchedBy: signer.id }), signer };
  }

  /** What a bundle announces with a statement; undefined if the new key is trusted already. */
  async announced(text: string): Promise<AnnouncedKey | undefined> {
    const announced: AnnouncedKey = { statement: text, id: null, signer: null, refused: null };
    try {
      const statement = readKeyStatement(text, 'the announcement');
      announced.id = statement.key.id;
      if ((await this.list()).some(({ id }) => id === announced.id)) return undefined;
      announced.signer = (await this.#checked(statement)).signer.name;
    } catch (error) {
      if (!(error instanceof DomainError)) throw error;
      announced.refused = error.message;
    }
    return announced;
  }

  /** Removes a key, by its name, its ID or the beginning of that. Throws `NotFound` and `Invalid`. */
  async remove(text: string): Promise<TrustedKey> {
    const found = (await this.list()).filter(
      ({ id, name }) => name === text || (text.length >= 8 && id.startsWith(text)),
    );
    const [key] = found;
    if (!key) throw new DomainError('NotFound', `No trusted key has the name or the ID ${text}.`);
    if (found.length > 1) throw bundleInvalid(`${text} is the name of ${found.length} keys; give the ID of one`);
    await this.#database.transaction(async (tx) => {
      await tx.run('DELETE FROM bundle_keys WHERE id = ?', [key.id]);
      await recordEvent(tx, bundleEvent('bundle.key_removed', key.id, { name: key.name }), this.#now());
    });
    return key;
  }

  /**
   * Trusts a key never again, because a trusted key for revocations has signed so. Throws `Invalid`, `Denied` if it is not one of such a key, and
   * `QuotaExceeded`.
   */
  async revoke({ id, envelope }: Revocation): Promise<Revoked> {
    const signer = await this.#signerOfStatement(revocationType, envelope, 'revocations');
    if (signer.id === id) throw bundleInvalid(`${signer.name} cannot revoke itself. Remove it`);
    const trusted = await this.list();
    const vouched = trusted.filter(({ vouchedBy }) => vouchedBy === id);
    const revoked = await this.revoked();
    const before = revoked.find((each) => each.id === id);
    if (before) return { key: before, signer, isRepeated: true, vouched };
    if (revoked.length >= maxRevoked)
      throw new DomainError('QuotaExceeded', `${maxRevoked} keys are revoked here already. Remove the key instead.`);
    const name = trusted.find((each) => each.id === id)?.name ?? null;
    const key: RevokedKey = { id, name, revokedBy: signer.id, revokedAt: this.#now() };
    await this.#database.transaction(async (tx) => {
      const row = { id, name, revoked_by: key.revokedBy, revoked_at: key.revokedAt };
      if ((await tx.insertNew('bundle_revocations', [row])) === 0) return;
      await tx.run('DELETE FROM bundle_keys WHERE id = ?', [id]);
      const details = { name, revoked_by: signer.id, vouched_for: vouched.map((each) => each.id) };
      await recordEvent(tx, bundleEvent('bundle.key_revoked', id, details), this.#now());
    });
    return { key, signer, isRepeated: false, vouched };
  }

  /**
   * The key that has signed an envelope and may do so; undefined if it has no signature. Throws `Denied` if none of its signatures is
   * valid, or the key is unknown, is revoked, is trusted for something else, or counts no more. `what` is for the message.
   */
  async signerOf(type: string, envelope: Envelope, purpose: Purpose, what: string): Promise<TrustedKey | undefined> {
    const { signatures } = envelope;
    if (signatures.length === 0) return undefined;
    const keys = await this.list();
    const refuse = (reason: string) => new DomainError('Denied', `${what} ${reason}.`);
    const named = keys.filter(({ id }) => signatures.some(({ keyId }) => keyId === id));
    if (named.length === 0) {
      const revoked = (await this.revoked()).find(({ id }) => signatures.some(({ keyId }) => keyId === id));
      if (revoked) throw refuse(`is signed by ${revokedText(revoked)}`);
      const ids = signatures.map(({ keyId }) => keyId.slice(0, 16)).join(', ');
      throw refuse(`is signed by the key ${ids}, which is not trusted here`);
    }
    const valid = named.filter((key) => isSealedBy(type, envelope, key));
    if (valid.length === 0) throw refuse(`has a signature of ${named[0]!.name} that is not valid: it was altered`);
    const able = valid.filter(({ role }) => maySign(role, purpose));
    if (able.length === 0) throw refuse(`is signed by ${valid[0]!.name}, which is not trusted for ${purpose}`);
    const current = able.find(({ expiresAt }) => expiresAt === null || expiresAt > this.#now());
    if (!current)
      throw refuse(
        `is signed by ${able[0]!.name}, which is not trusted any more since ${new Date(able[0]!.expiresAt!).toISOString()}`,
      );
    return current;
  }

  /** As `signerOf`, for what was signed of a bundle. Throws `Invalid`, too: for one without a signature, unless it may be `unsigned`. */
  async signerOfBundle(envelope: Envelope, unsigned: boolean): Promise<TrustedKey | undefined> {
    const key = await this.signerOf(statementType, envelope, 'bundles', 'The bundle');
    if (!key && !unsigned)
      throw bundleInvalid('the bundle is not signed, so its source is not known. Import it with --unsigned');
    return key;
  }

  /** The key that signed a statement, and the role that it gives. Throws `Invalid` and `Denied` if the new key cannot be trusted because of it. */
  async #checked({
    key,
    role: stated,
    expiresAt,
    envelope,
  }: KeyStatement): Promise<{ signer: TrustedKey; role: Role }> {
    await this.#refuseRevoked(key.id);
    const signer = await this.#signerOfStatement(keyStatementType, envelope, 'new keys');
    const named = `the key ${key.id.slice(0, 16)}`;
    const known = (await this.list()).find(({ id }) => id === key.id);
    if (known)
      throw bundleInvalid(
        `${named} is trusted already, with the name ${known.name}. A signed statement does not change that; add its public key to change it`,
      );
    const role = stated ?? signer.role;
    if (!includes(signer.role, role))
      throw bundleInvalid(`${signer.name} may sign ${signer.role}, so it cannot sign that ${named} may sign ${role}`);
    if (expiresAt !== null && expiresAt <= this.#now())
      throw bundleInvalid(`${named} was to be trusted until ${new Date(expiresAt).toISOString()}`);
    return { signer, role };
  }

  async #signerOfStatement(type: string, envelope: Envelope, purpose: Purpose): Promise<TrustedKey> {
    const signer = await this.signerOf(type, envelope, purpose, 'The statement');
    if (!signer) throw new DomainError('Denied', 'The statement is not signed.');
    return signer;
  }

  async #refuseRevoked(id: string): Promise<void> {
    const revoked = (await this.revoked()).find((each) => each.id === id);
    if (revoked) throw bundleInvalid(`this is ${revokedText(revoked)}. It cannot be trusted again: make a new key`);
  }

  async #write(
    { id, pem }: PublicKey,
    terms: Pick<TrustedKey, 'name' | 'role' | 'expiresAt' | 'vouchedBy'>,
  ): Promise<TrustedKey> {
    await this.#refuseRevoked(id);
    const known = await this.list();
    if (known.length >= maxKeys && known.every((each) => each.id !== id))
      throw new DomainError('QuotaExceeded', `This installation trusts ${maxKeys} keys already. Remove one first.`);
    const { name, role, expiresAt, vouchedBy } = terms;
    const details = { name, role, expires_at: expiresAt, vouched_by: vouchedBy };
    const row = { id, public_key: pem, added_at: this.#now(), ...details };
    const update = 'name = new.name, role = new.role, expires_at = new.expires_at, vouched_by = new.vouched_by';
    await this.#database.transaction(async (tx) => {
      await tx.upsert('bundle_keys', ['id'], [row], update);
      await recordEvent(tx, bundleEvent('bundle.key_trusted', id, details), this.#now());
    });
    return (await this.list()).find((each) => each.id === id)!;
  }
}

function maySign(role: Role, purpose: Purpose): boolean {
  if (role === 'revoke') return purpose === 'revocations';
  if (purpose === 'revocations') return false;
  return role === 'both' || purpose === 'new keys' || role === purpose;
}

/** Whether a key with the first role may sign all that one with the second may. */
function includes(role: Role, other: Role): boolean {
  return role === other || (role === 'both' && other !== 'revoke');
}

function revokedText({ id, name, revokedAt, revokedBy }: RevokedKey): string {
  const which = name === null ? `the key ${id.slice(0, 16)}` : `the key ${name}, ${id.slice(0, 16)}`;
  return `${which}, which was revoked at ${new Date(revokedAt).toISOString()} by the key ${revokedBy.slice(0, 16)}`;
}
