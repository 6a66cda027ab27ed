import { createHash } from 'node:crypto';
import { pause } from '../../runtime/event-loop.ts';
import type { OpenBytes } from '../../storage/files/zip-bytes.ts';
import { signatureFile } from '../format/nupkg.ts';
import { Zip } from '../../storage/files/zip.ts';

/** For packages that clients use already. */
const lenient = { backslashes: true };

/** Whether two packages have the same files with the same bytes, apart from their signatures. */
export async function haveSameContent(one: OpenBytes, other: OpenBytes): Promise<boolean> {
  using first = await Zip.open(one, lenient);
  using second = await Zip.open(other, lenient);
  const [sizes, others] = [await sizesIn(first), await sizesIn(second)];
  if (!sizes || !others || sizes.size !== others.size) return false;
  for (const [name, size] of sizes) if (others.get(name) !== size) return false;
  const hashes = await hashesIn(first);
  for (const [name, hash] of await hashesIn(second)) if (hashes.get(name) !== hash) return false;
  return true;
}

/** The size of each file; undefined if two files have one name. */
async function sizesIn(zip: Zip): Promise<Map<string, number> | undefined> {
  const sizes = new Map<string, number>();
  for await (const { name, size } of zip.entries()) {
    if (name === signatureFile) continue;
    if (sizes.has(name)) return undefined;
    sizes.set(name, size);
    await pause();
  }
  return sizes;
}

async function hashesIn(zip: Zip): Promise<Map<string, string>> {
  const hashes = new Map<string, string>();
  for await (const entry of zip.entries()) {
    if (entry.name === signatureFile) continue;
    const hash = createHash('sha256');
    for await (const chunk of await zip.open(entry)) {
      hash.update(chunk as Buffer);
      await pause();
    }
    hashes.set(entry.name, hash.digest('base64'));
  }
  return hashes;
}
