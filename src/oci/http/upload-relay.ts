import type { IncomingMessage } from 'node:http';
import type { Logger } from 'pino';
import { z } from 'zod';
import type { Accounts } from '../../accounts/accounts.ts';
import type { Database } from '../../database/database.ts';
import { parseDigest, type Digest } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import type { Instances } from '../../instances/instances.ts';
import { InstanceLost, type Relay, type RelayBody } from '../../instances/relay.ts';
import type { RelayHandler } from '../../instances/relay-listener.ts';
import type { Quota } from '../../usage/quota.ts';
import type { Images } from '../catalog/images.ts';
import { isUploadId, parseRepositoryName } from '../format/reference.ts';
import type { Chunk } from '../uploads/upload-body.ts';
import { folderOf, loseUpload, uploadBusy, uploadUnknown, type UploadKey } from '../uploads/upload-lease.ts';

const handlerName = 'uploads';

/** What one instance asks of another. The sender has authenticated the client, and checked its scopes, names and limits. */
const uploadWork = z.strictObject({
  do: z.enum(['received', 'append', 'finish', 'cancel']),
  accountId: z.int().min(1),
  repository: z.string(),
  id: z.string().refine(isUploadId),
  /** Only to finish. */
  digest: z.string().optional(),
  /** As in `Chunk`. */
  start: z.int().min(0).optional(),
  length: z.int().min(0).optional(),
  size: z.int().min(0),
});
type UploadWork = z.input<typeof uploadWork>;

const receivedAnswer = z.int().min(0).nullable();

interface ContinuedParts {
  database: Database;
  images: Images;
  instances: Instances;
  /** Undefined if other instances cannot be called. */
  relay: Relay | undefined;
  /** Milliseconds that a client may be silent. */
  idle: number;
  log: Logger;
}

/**
 * The upload sessions of all instances. The staged file of a session is in one data folder; every instance with this folder
 * continues the session itself, and the others relay to one of these. If there is none, the session ends, and the client
 * starts that blob anew.
 */
export class ContinuedUploads {
  readonly #parts: ContinuedParts;

  constructor(parts: ContinuedParts) {
    this.#parts = parts;
  }

  /** As `Uploads.received`. */
  async received(key: UploadKey): Promise<number> {
    const folder = await this.#elsewhere(key);
    if (folder === undefined) return this.#parts.images.uploads.received(key);
    return (await this.#relay(folder, key, { do: 'received', size: 0 })) ?? 0;
  }

  /** As `Uploads.append`. */
  async append(key: UploadKey, chunk: Chunk): Promise<number> {
    const folder = await this.#elsewhere(key);
    if (folder === undefined) return this.#parts.images.uploads.append(key, chunk);
    return (await this.#relay(folder, key, { do: 'append', ...placeOf(chunk) }, chunk)) ?? 0;
  }

  /** As `Uploads.finish`. */
  async finish(key: UploadKey, digest: Digest, chunk: Chunk): Promise<void> {
    const { uploads, blobs } = this.#parts.images;
    const folder = await this.#elsewhere(key);
    if (folder === undefined) return uploads.finish(key, digest, chunk);
    try {
      await this.#relay(folder, key, { do: 'finish', digest, ...placeOf(chunk) }, chunk);
    } catch (error) {
      if (!isDomainError(error, 'UploadUnknown')) throw error;
      // The other instance may have finished it before it was lost.
      if (!(await blobs.isFromUpload(key.accountId, key.repository, digest, key.id))) throw error;
    }
  }

  /** As `Uploads.cancel`. */
  async cancel(key: UploadKey): Promise<void> {
    const folder = await this.#elsewhere(key);
    if (folder === undefined) return this.#parts.images.uploads.cancel(key);
    await this.#relay(folder, key, { do: 'cancel', size: 0 });
  }

  /** The data folder that has the session's file; undefined if this instance can use it, or there is no such session. */
  async #elsewhere(key: UploadKey): Promise<string | undefined> {
    const { database, images, instances } = this.#parts;
    if (images.uploads.isOpen(key.id)) return undefined;
    const folder = await folderOf(database, key);
    return folder === instances.folder ? undefined : folder;
  }

  async #relay(
    folder: string,
    key: UploadKey,
    work: Omit<UploadWork, keyof UploadKey>,
    chunk?: Chunk,
  ): Promise<number | null> {
    const { database, idle, log } = this.#parts;
    const { accountId, repository, id } = key;
    const whole: UploadWork = { ...work, accountId, repository, id };
    const body = chunk && { source: chunk.source, size: chunk.size || undefined, idle, onData: chunk.onData };
    try {
      return await this.#call(folder, whole, body);
    } catch (error) {
      if (!(error instanceof InstanceLost)) throw error;
      log.warn({ err: error, upload: id }, 'an upload could not continue at the instance that has it');
      // For example, another request has taken the session over.
      if (error.accepted && (await this.#isThere(folder, whole))) throw uploadBusy();
      await loseUpload(database, key);
      throw uploadUnknown(id);
    }
  }

  async #call(folder: string, work: UploadWork, body?: RelayBody): Promise<number | null> {
    const { relay } = this.#parts;
    if (!relay) throw new InstanceLost('this instance has no server.internal, so it cannot call others', false);
    return receivedAnswer.parse(await relay.call({ folder, name: handlerName, work }, body));
  }

  /** Whether the session can continue at the instance that has it. Throws `UploadUnknown` if it has ended. */
  async #isThere(folder: string, work: UploadWork): Promise<boolean> {
    try {
      await this.#call(folder, { ...work, do: 'received' });
      return true;
    } catch (error) {
      if (error instanceof InstanceLost) return false;
      throw error;
    }
  }
}

/** Does the work of other instances on the sessions of this data folder. */
export function uploadHandler(images: Images, accounts: Accounts, quota: Quota, idle: number): RelayHandler {
  const { uploads } = images;
  return {
    name: handlerName,
    run: async (given: unknown, request: IncomingMessage): Promise<number | null> => {
      const parsed = uploadWork.safeParse(given);
      if (!parsed.success) throw new DomainError('UploadInvalid', 'The other instance does not accept this request.');
      const { do: what, accountId, repository, id, digest, ...place } = parsed.data;
      const key = { accountId, repository: parseRepositoryName(repository), id };
      const account = await accounts.get(accountId);
      if (!account) throw uploadUnknown(id);
      const chunk: Chunk = {
        ...place,
        source: request,
        // The sender notices a silent client first, and keeps the session.
        idle: 2 * idle,
        allowance: quota.unfinishedOf({ accountId, accountName: account.name }),
        // The sender counts the bytes.
        onData: () => undefined,
      };
      if (what === 'received') return uploads.received(key);
      if (what === 'append') return uploads.append(key, chunk);
      if (what === 'finish') await uploads.finish(key, parseDigest(digest ?? ''), chunk);
      else await uploads.cancel(key);
      return null;
    },
  };
}

function placeOf({ start, length, size }: Chunk): Pick<UploadWork, 'start' | 'length' | 'size'> {
  return { start, length, size };
}
