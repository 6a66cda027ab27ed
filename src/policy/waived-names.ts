import type { MirroredName } from '../mirror/policy/admission.ts';
import type { RangeReader } from './compile.ts';
import type { PolicySubject, WaiverFact } from './decide.ts';
import { isRange } from './waiver-request.ts';
import type { Waiver } from './waiver.ts';
import type { Waivers } from './waivers.ts';

/** An approved waiver whose references were read. */
interface ReadWaiver {
  fact: WaiverFact;
  references: ReadonlySet<string>;
  ranges: readonly ((version: string) => boolean)[];
}

/** Finds the waivers for references of mirrored names. */
export class WaivedNames {
  readonly #waivers: Pick<Waivers, 'approved'>;
  readonly #readRange: RangeReader;
  readonly #read = new WeakMap<readonly Waiver[], readonly ReadWaiver[]>();

  constructor(waivers: Pick<Waivers, 'approved'>, readRange: RangeReader) {
    this.#waivers = waivers;
    this.#readRange = readRange;
  }

  /**
   * Tells the waivers of each reference of a name that have not ended at `now` (milliseconds since 1970 UTC); undefined if the
   * name has none. One for a manifest also counts for what the manifest names.
   */
  async of(
    name: MirroredName,
    kind: PolicySubject['kind'],
    now: number,
  ): Promise<((reference: string) => readonly WaiverFact[]) | undefined> {
    const approved = await this.#waivers.approved(name.accountId, kind, name.shown[0]!);
    const valid = this.#readOf(approved).filter(({ fact }) => fact.until > now);
    if (valid.length === 0) return undefined;
    const namingOf = await name.facts.naming?.();
    return (reference) => {
      const means = [reference, ...(namingOf?.(reference) ?? [])];
      return valid
        .filter(
          ({ references, ranges }) =>
            means.some((each) => references.has(each)) || ranges.some((includes) => includes(reference)),
        )
        .map(({ fact }) => fact);
    };
  }

  #readOf(approved: readonly Waiver[]): readonly ReadWaiver[] {
    let read = this.#read.get(approved);
    if (!read) this.#read.set(approved, (read = approved.map((each) => readWaiver(each, this.#readRange))));
    return read;
  }
}

function readWaiver(
  { id, layer, lifts, expiresAt, decidedBy, references }: Waiver,
  readRange: RangeReader,
): ReadWaiver {
  const by = decidedBy?.name ?? decidedBy?.id ?? 'the system';
  return {
    fact: { id, layer: layer!, lifts, until: expiresAt, by },
    references: new Set(references),
    ranges: references
      .filter(isRange)
      .map(readRange)
      .filter((each) => each !== undefined),
  };
}
