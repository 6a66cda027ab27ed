import { bundleInvalid, countsIn } from '../format.ts';
import { signerOfBundle, type ExamineParts } from '../examine.ts';
import type { OpenBundle } from '../read.ts';
import { checkBytes } from '../verify.ts';
import type { BundleRunProgress, BundleRunState } from './run.ts';

/**
 * Checks the signature of a bundle, and all bytes in its segments that are here; imports nothing. Writes into `progress` what an import writes.
 * Throws as an import.
 */
export async function checkSegments(
  parts: Pick<ExamineParts, 'trust' | 'database' | 'now'>,
  opened: OpenBundle,
  unsigned: boolean,
  progress: BundleRunProgress,
  signal: AbortSignal,
): Promise<BundleRunState> {
  const { header, blobs, entries } = opened.list;
  const key = await signerOfBundle(parts, opened, unsigned);
  const watch = (bytes: number, of: number) => Object.assign(progress, { bytes, of });
  const { damaged } = await checkBytes(opened, { watch, signal });
  const [first] = damaged;
  if (first)
    throw bundleInvalid(
      `${damaged.length} items are damaged, such as ${first.digest} in ${first.place}. Send a good copy`,
    );
  progress.lacking = await opened.lacking(blobs);
  progress.result = {
    id: opened.id,
    counts: await countsIn(entries),
    segments: header.segments,
    bytes: header.bytes,
    key: key?.id ?? null,
    policy: header.policy !== null,
    knownBad: header.known_bad,
    newKey: header.new_key === undefined ? undefined : await parts.trust.announced(header.new_key),
  };
  return 'checked';
}
