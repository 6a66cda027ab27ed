import { stat } from 'node:fs/promises';
import type { Database } from '../database/database.ts';
import type { Digest } from '../runtime/digest.ts';
import { withPauses } from '../runtime/event-loop.ts';
import { installationIdentity } from '../storage/upkeep/identity.ts';
import { HeldDigests } from './digest-set.ts';
import { bundleInvalid } from './format.ts';
import { openBundle } from './read.ts';
import { readReceipt } from './receipt.ts';
import type { TrustedKeys } from './trust.ts';

/** What a new bundle leaves out, because its receiver has it. */
interface Base {
  /** The digest of the receipt, or of the earlier bundle. */
  id: Digest;
  /** The installation that the new bundle is for; undefined for each. */
  audience: string | undefined;
  digests: HeldDigests;
  /** Whether it is a receipt without a signature. */
  isUnsigned: boolean;
}

/**
 * Reads what a receiver has: its receipt; or an earlier bundle of this installation, in its folder or as one of its segments, which the receiver has
 * imported. Throws `Invalid`, and `Denied` for a receipt whose key is not trusted.
 */
export async function readBase(
  { database, trust }: { database: Database; trust: TrustedKeys },
  path: string,
): Promise<Base> {
  const isBundle = path.endsWith('.tar') || ((await stat(path).catch(() => undefined))?.isDirectory() ?? false);
  if (!isBundle) {
    const { id, installation, digests, key } = await readReceipt(trust, path);
    return { id, audience: installation, digests, isUnsigned: !key };
  }
  await using bundle = await openBundle([path]);
  const { header, entries } = bundle.list;
  if (header.source !== (await installationIdentity(database)))
    throw bundleInvalid(`${path} was made by the installation ${header.source}. Name an earlier bundle of this one`);
  const digests = new HeldDigests();
  for await (const { digest, account } of withPauses(entries)) digests.add(digest, account);
  return { id: bundle.id, audience: header.audience ?? undefined, digests, isUnsigned: false };
}
