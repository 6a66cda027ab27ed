import type { AffectedTest, BadEntry } from '../known-bad/entry.ts';
import type { KnownBad } from '../known-bad/known-bad.ts';
import type { ListSettings } from '../known-bad/list-settings.ts';
import type { MirroredName } from '../mirror/policy/admission.ts';
import { withPauses } from '../runtime/event-loop.ts';
import type { Layer } from './decide.ts';

/** What lists of known bad content say of a name. */
export interface ListedName {
  /** A layer for each mode of lists. */
  layers: readonly Layer[];
  /** Resolves to the entries of each of `references`, which are versions, tags, or digests. */
  entriesOf(references: readonly string[]): Promise<(reference: string) => readonly BadEntry[]>;
}

/** The lists of a policy. */
interface CompiledLists {
  /** A layer for each mode of lists. */
  layers: readonly Layer[];
  /** Those of `entries` that the policy does not except. */
  counted: (entries: readonly BadEntry[]) => readonly BadEntry[];
}

/** Finds what lists of known bad content say of mirrored names. */
export class ListedNames {
  readonly #knownBad: KnownBad;
  readonly #isAffected: AffectedTest;
  readonly #compiled = new WeakMap<readonly ListSettings[], CompiledLists>();

  /** `isAffected` reads versions. */
  constructor(knownBad: KnownBad, isAffected: AffectedTest) {
    this.#knownBad = knownBad;
    this.#isAffected = isAffected;
  }

  /** What lists say of a name; undefined if none can say anything of it. */
  async of(name: Pick<MirroredName, 'kind' | 'name' | 'shown'>): Promise<ListedName | undefined> {
    const settings = await this.#knownBad.lists();
    if (settings.length === 0) return undefined;
    let lists = this.#compiled.get(settings);
    if (!lists) this.#compiled.set(settings, (lists = compileLists(settings)));
    return name.kind === 'package' ? this.#ofPackage(name, lists) : this.#ofImage(name, lists);
  }

  /** What lists say of content by its digest, whatever its name is. */
  async ofContent(): Promise<ListedName | undefined> {
    return this.of({ kind: 'image', name: '', shown: [] });
  }

  async #ofPackage(
    { name }: Pick<MirroredName, 'name'>,
    { layers, counted }: CompiledLists,
  ): Promise<ListedName | undefined> {
    const entries = counted(await this.#knownBad.of('package', name));
    if (entries.length === 0) return undefined;
    return {
      layers,
      entriesOf: async (versions) => {
        const found = new Map<string, BadEntry[]>();
        for (const version of versions) {
          for await (const entry of withPauses(entries)) {
            if (this.#isAffected(entry, version)) found.set(version, [...(found.get(version) ?? []), entry]);
          }
        }
        return (version) => found.get(version) ?? [];
      },
    };
  }

  async #ofImage(
    { shown }: Pick<MirroredName, 'shown'>,
    { layers, counted }: CompiledLists,
  ): Promise<ListedName | undefined> {
    const found = await Promise.all(shown.map((each) => this.#knownBad.of('image', each)));
    const entries = counted(found.flat());
    if (entries.length === 0 && !(await this.#knownBad.haveDigests())) return undefined;
    return {
      layers,
      entriesOf: async (references) => {
        // A tag is decided by the digest that it turns out to have now.
        const digests = references.filter((each) => each.includes(':'));
        const listed = await this.#knownBad.ofDigests(digests);
        return (reference) => [...entries, ...counted(listed.get(reference) ?? [])];
      },
    };
  }
}

function compileLists(settings: readonly ListSettings[]): CompiledLists {
  const inMode = (wanted: string) => settings.filter(({ mode }) => mode === wanted).map(({ name }) => name);
  const excepted = new Map(settings.map(({ name, except }) => [name, new Set(except)]));
  return {
    layers: [listLayer(true, inMode('enforce')), listLayer(false, inMode('audit'))].filter(
      ({ lists }) => lists!.size > 0,
    ),
    counted: (entries) => entries.filter(({ list, id }) => excepted.get(list)?.has(id) === false),
  };
}

/** It has no rules of its own, and no age. */
function listLayer(isEnforced: boolean, lists: readonly string[]): Layer {
  return {
    scope: 'all',
    isEnforced,
    lists: new Set(lists),
    age: { package: 0, image: 0 },
    fixesPass: false,
    unknownDate: 'firstSeen',
    listsHeld: false,
    deniesWithdrawn: false,
    isExcepted: () => false,
    rules: [],
    regimes: [],
  };
}
