import type { Accounts } from '../accounts/accounts.ts';
import { runImport } from '../import/import.ts';
import type {
  ComparedName,
  ComparingOptions,
  Importable,
  ImportGroup,
  ImportItem,
  ImportOptions,
  ImportResult,
} from '../import/item.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Quota } from '../usage/quota.ts';
import { isMirroredName, type Inventory, type InventoryName, type NameState } from './inventory.ts';
import type { Predecessor } from './predecessor.ts';

/** The part of a protocol that brings content in. */
export interface TakeoverProtocol extends Partial<Importable> {
  readonly kind: string;
  readonly upstreams: { readonly kind: string };
}

/** What became of the versions or tags of a name. */
export interface Progress {
  row: InventoryName;
  /** Whether the predecessor's list of them was read to its end. */
  ended: boolean;
  /** Whether some had come before. */
  hadSome: boolean;
  /** How many came, and how many of them were not here; how many upstreams have, too. */
  came: number;
  imported: number;
  mirrored: number;
  /** The first conflicts and failures. */
  problems: Map<string, ImportResult>;
  /** Why the list could not be read. */
  failure: Error | undefined;
}

/** Problems of one name that are kept. */
const maxProblems = 100;

interface ArrivalParts {
  inventory: Inventory;
  accounts: Accounts;
  protocols: readonly TakeoverProtocol[];
  quota: Quota;
}

interface RunOptions {
  signal: AbortSignal;
  /** Versions or tags that come at the same time. */
  concurrency: number;
  /** The only ones to bring; all of them if undefined. */
  references?: readonly string[] | undefined;
  rate?: number | undefined;
}

/** Brings the versions and tags of predecessors in, each once. */
export class Arrivals {
  readonly #parts: ArrivalParts;

  constructor(parts: ArrivalParts) {
    this.#parts = parts;
  }

  protocolOf({ config }: Predecessor): TakeoverProtocol | undefined {
    return this.#parts.protocols.find((each) => each.upstreams.kind === config.kind && each.importFrom && each.holds);
  }

  /** What a predecessor has. */
  groupsOf(predecessor: Predecessor, options: ImportOptions): readonly AsyncIterable<ImportGroup>[] {
    return this.protocolOf(predecessor)?.importFrom!(predecessor.source, options) ?? [];
  }

  /** What a predecessor and this server have, beside each other. */
  comparedOf(
    predecessor: Predecessor,
    options: ImportOptions,
    how: ComparingOptions,
  ): readonly AsyncIterable<ComparedName>[] {
    return this.protocolOf(predecessor)?.compare?.(predecessor.source, options, how) ?? [];
  }

  /** Throws `NotFound` if its account does not exist. */
  async options({ name, config, isWanted, nameHere }: Predecessor): Promise<Omit<ImportOptions, 'signal' | 'warn'>> {
    const account = await this.#parts.accounts.named(config.account);
    if (!account)
      throw new DomainError('NotFound', `The account ${config.account} of the predecessor ${name} does not exist.`);
    const owner = { accountId: account.id, accountName: account.name };
    return {
      accountId: account.id,
      dryRun: false,
      isWanted,
      nameHere,
      allHosted: false,
      moveTags: false,
      permit: () => undefined,
      admit: (bytes) => this.#parts.quota.admit(owner, bytes, () => undefined),
    };
  }

  /** Brings the versions or tags of names of one predecessor. `stopped` says why the whole cannot go on. */
  async run(
    predecessor: Predecessor,
    rows: readonly InventoryName[],
    { references, signal, ...limits }: RunOptions,
  ): Promise<{ found: Progress[]; stopped: string | undefined }> {
    const byName = new Map<string, Progress>(
      rows.map((row) => [
        row.name.toLowerCase(),
        {
          row,
          ended: false,
          hadSome: false,
          came: 0,
          imported: 0,
          mirrored: 0,
          problems: new Map(),
          failure: undefined,
        },
      ]),
    );
    const names = rows.map(({ name }) => name);
    const fixed = await this.options(predecessor);
    const begin = (stop: AbortSignal, warn: ImportOptions['warn']) =>
      this.groupsOf(predecessor, { ...fixed, names, references, signal: stop, warn }).map((phase) =>
        this.#watched(phase, byName),
      );
    const { problems, stopped } = await runImport(begin, { ...limits, signal });
    for (const progress of byName.values()) {
      if (!progress.ended) progress.failure ??= new Error(problems[0]?.note ?? stopped ?? 'it was stopped');
      await this.#settle(progress, references === undefined);
    }
    return { found: [...byName.values()], stopped };
  }

  async *#watched(
    phase: AsyncIterable<ImportGroup>,
    byName: ReadonlyMap<string, Progress>,
  ): AsyncGenerator<ImportGroup> {
    for await (const group of phase) {
      const progress = byName.get(group.name.toLowerCase());
      if (progress) yield { name: group.name, items: () => this.#items(group, progress) };
    }
  }

  /** The versions or tags that have not come before, and those that came and may have changed there. */
  async *#items(group: ImportGroup, progress: Progress): AsyncGenerator<ImportItem> {
    const { row, problems } = progress;
    const note = (reference: string, result: ImportResult) => {
      if (problems.size < maxProblems) problems.set(reference, result);
    };
    // Its other versions come when they are asked for from now on.
    const host = async () => {
      if (!isMirroredName(progress.row)) return;
      progress.row = { ...row, state: 'new', note: null };
      await this.#parts.inventory.settle(row, 'new', null);
    };
    try {
      const came = await this.#parts.inventory.came(row);
      for await (const item of group.items()) {
        const isAgain = came.has(item.reference);
        progress.hadSome ||= isAgain;
        const run = isAgain ? item.again : item.run;
        if (!run) continue;
        yield {
          ...item,
          run: async () => {
            try {
              if (!isAgain && item.isHosted) await host();
              const result = await run();
              const { outcome } = result;
              problems.delete(item.reference);
              if (outcome === 'conflict') note(item.reference, result);
              else if (outcome === 'mirrored') progress.mirrored += 1;
              else if (!isAgain) {
                await host();
                progress.came += 1;
                if (outcome === 'imported') progress.imported += 1;
                await this.#parts.inventory.record(row, item.reference);
              }
              return result;
            } catch (error) {
              note(item.reference, { outcome: 'failed', bytes: 0, note: (error as Error).message });
              throw error;
            }
          },
        };
      }
      progress.ended = true;
    } catch (error) {
      progress.failure = error as Error;
      throw error;
    }
  }

  /** Notes what is known of a name now. */
  async #settle(progress: Progress, isAll: boolean): Promise<void> {
    const { row, ended, hadSome, came, mirrored, problems } = progress;
    const { inventory } = this.#parts;
    const shared = conflictIn(progress);
    const problem = problemIn(progress);
    const isHosted = hadSome || came > 0;
    const isMirrored = !isHosted && (mirrored > 0 || isMirroredName(row));
    const note = shared?.note ?? problem ?? [...problems.values()].find(isConflict)?.note ?? null;
    let state: NameState | undefined;
    if (shared && !isHosted) state = 'conflict';
    else if (isMirrored) state = isAll && ended && note === null ? 'mirrored' : 'alike';
    else if (isAll && ended && (isHosted || problem === undefined)) state = note === null ? 'whole' : 'partial';
    if (state !== undefined && (state !== row.state || note !== row.note)) await inventory.settle(row, state, note);
    else if (problem !== undefined && note !== row.note) await inventory.settle(row, row.state, note);
  }
}

function isConflict({ outcome }: ImportResult): boolean {
  return outcome === 'conflict';
}

/** Why something of a name did not come; undefined if nothing failed. */
export function problemIn({ failure, problems }: Progress): string | undefined {
  return failure?.message ?? [...problems.values()].find(({ outcome }) => outcome === 'failed')?.note;
}

/** The conflict of a version of which an upstream has other content; undefined if there is none. */
export function conflictIn({ problems }: Progress): ImportResult | undefined {
  return [...problems.values()].find(({ outcome, alsoAt }) => outcome === 'conflict' && alsoAt !== undefined);
}
