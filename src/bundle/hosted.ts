import { NameSet } from '../accounts/names.ts';
import type { Account } from '../accounts/accounts.ts';
import type { Transaction } from '../database/database.ts';
import { typed } from '../runtime/command-name.ts';
import type { Digest } from '../runtime/digest.ts';
import { pause } from '../runtime/event-loop.ts';
import { bundleInvalid, type BundleEntry } from './format.ts';
import type { HostedContents, WriteHosted } from './hosted-contents.ts';

// Content that accounts host, in bundles. It comes into the account of the same name.

/** What bundles need of the accounts and the protocols. */
export interface HostedParts {
  accounts: { named(name: string): Promise<Account | undefined> };
  protocols: readonly {
    /** The kind of the upstreams that speak it. */
    upstreams: { kind: string };
    carried?: HostedContents;
  }[];
}

/** Names of one account. */
export interface HostedSelection {
  account: string;
  pattern: string;
}

/** A selection as people write it: `account/pattern`, or `account` for all names. Throws `Invalid`. */
export function parseHosted(text: string): HostedSelection {
  const [account = '', ...rest] = text.split('/');
  const pattern = rest.length === 0 ? '*' : rest.join('/');
  if (account === '' || pattern === '')
    throw bundleInvalid(
      `${text}: expected an account and a pattern of names, such as default/Contoso.* or team/apps/*`,
    );
  return { account, pattern };
}

/** The entries of a bundle for hosted content. Throws `Invalid` for a selection without any. */
export async function* hostedEntries(
  { accounts, protocols }: HostedParts,
  selections: readonly HostedSelection[],
): AsyncGenerator<BundleEntry> {
  for (const { account, pattern } of selections) {
    const found = await accounts.named(account);
    if (!found) throw bundleInvalid(`there is no account ${account}`);
    const names = new NameSet([pattern]);
    let isEmpty = true;
    for (const { upstreams, carried } of protocols)
      for await (const entry of carried?.entries(found.id, names) ?? []) {
        await pause();
        isEmpty = false;
        const mirrored = { etag: null, modified: null, validated_at: 0 };
        yield { ...entry, ...mirrored, protocol: upstreams.kind, upstream: '', account };
      }
    if (isEmpty) throw bundleInvalid(`the account ${account} hosts no package and no image that ${pattern} matches`);
  }
}

/** Whether an account hosts a version, tag or digest of a name. */
export async function hosts(
  carried: HostedContents | undefined,
  accountId: number,
  { name, reference }: Pick<BundleEntry, 'name' | 'reference'>,
): Promise<boolean> {
  for await (const each of carried?.entries(accountId, new NameSet([name])) ?? [])
    if (each.reference === reference) return true;
  return false;
}

interface HostedGroup {
  accountId: number;
  carried: HostedContents;
  entries: BundleEntry[];
  digests: ReadonlySet<Digest>;
}

/** The hosted entries of one bundle, each with what its protocol does for it. */
export class HostedImport {
  readonly #groups: readonly HostedGroup[];
  readonly #source: string;

  private constructor(groups: readonly HostedGroup[], source: string) {
    this.#groups = groups;
    this.#source = source;
  }

  /** Throws `Invalid` if an account of the bundle is not here. `source` is the installation that made it. */
  static async of(
    { accounts, protocols }: HostedParts,
    entries: readonly BundleEntry[],
    source: string,
  ): Promise<HostedImport> {
    const groups: HostedGroup[] = [];
    for (const [account, some] of Map.groupBy(entries, (each) => each.account!)) {
      const found = await accounts.named(account);
      if (!found)
        throw bundleInvalid(
          `the bundle has content of the account ${account}, which is not here. Make it: ${typed(`account create ${account}`)}`,
        );
      for (const [protocol, each] of Map.groupBy(some, (entry) => entry.protocol)) {
        const carried = protocols.find(({ upstreams }) => upstreams.kind === protocol)?.carried;
        if (!carried)
          throw bundleInvalid(`the bundle has hosted content of the protocol ${protocol}, which is unknown here`);
        groups.push({
          accountId: found.id,
          carried,
          entries: each,
          digests: new Set(each.map(({ digest }) => digest)),
        });
      }
    }
    return new HostedImport(groups, source);
  }

  /** Those of `digests` that the account has already to which the bundle brings them. */
  async among(digests: readonly Digest[]): Promise<Set<string>> {
    const found = new Set<string>();
    for (const { accountId, carried, digests: brought } of this.#groups) {
      const own = digests.filter((digest) => brought.has(digest));
      for (const digest of await carried.among(accountId, own)) found.add(digest);
    }
    return found;
  }

  /** Reads the entries, whose content is stored. Throws `Invalid` for wrong ones. */
  async prepare(
    stage: (bytes: Buffer) => Promise<Digest>,
  ): Promise<(tx: Transaction, isOlder: boolean) => Promise<number>> {
    const writers: WriteHosted[] = [];
    for (const { accountId, carried, entries } of this.#groups)
      writers.push(await carried.prepare(accountId, entries, stage));
    return async (tx, isOlder) => {
      let written = 0;
      for (const write of writers) written += await write(tx, { isOlder, from: this.#source });
      return written;
    };
  }
}
