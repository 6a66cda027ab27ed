import type { Command } from 'commander';
import { setTimeout as sleep } from 'node:timers/promises';
import { allAccounts } from '../policy/policies.ts';
import { readBase } from '../bundle/base.ts';
import { createBundle } from '../bundle/create.ts';
import {
  bundleInvalid,
  countsIn,
  ownerName,
  policyIn,
  segmentName,
  type BundleCounts,
  type BundleHeader,
} from '../bundle/format.ts';
import { parseHosted, type HostedSelection } from '../bundle/hosted.ts';
import { importBundle, shownWithin } from '../bundle/import.ts';
import { isPlain, openPlain } from '../bundle/plain.ts';
import { openBundle, type OpenBundle } from '../bundle/read.ts';
import type { PlainSource } from '../prefetch/plain.ts';
import { installationIdentity } from '../storage/upkeep/identity.ts';
import { receiptWriter, writeReceipt } from '../bundle/receipt.ts';
import { readKeyStatement } from '../bundle/statements.ts';
import { TrustedKeys, type AnnouncedKey } from '../bundle/trust.ts';
import { typed } from '../runtime/command-name.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Environment } from '../config/load.ts';
import { parseDuration, parseSize } from '../config/units.ts';
import { prefetch } from '../prefetch/prefetch.ts';
import type { PrefetchReport } from '../prefetch/report.ts';
import type { Installation } from '../server/installation.ts';
import { addBundleKeys, keyStatement, signingKey } from './bundle-keys.ts';
import { addBundleVerify } from './bundle-verify.ts';
import { row, shown } from './printed.ts';
import { printMissing } from './prefetch.ts';
import { binaryBytes, ProgressBar } from './progress.ts';
import { prefetchSelection, selectedItems, withSelection, type SelectionFlags } from './selection.ts';
import { accountId, stoppedBy, type Terminal, withInstallation } from './with-installation.ts';

interface CreateFlags extends SelectionFlags {
  to: string;
  against?: string;
  segment?: string;
  stored?: boolean;
  hosted?: HostedSelection[];
  key?: string;
  expires?: string;
  policy?: boolean;
  knownBad?: boolean;
  newKey?: string;
  allowMissing?: boolean;
  dryRun?: boolean;
}

interface ImportFlags {
  unsigned?: boolean;
  older?: boolean;
  name?: string;
  upstream?: string;
}

interface InspectFlags {
  list?: boolean;
  knownBad?: string;
  policy?: boolean;
  newKey?: boolean;
}

/** `entrepot bundle` */
export function addBundle(program: Command, environment: Environment, terminal: Terminal): void {
  const bundle = program
    .command('bundle')
    .description('carry mirrored content to installations without a network: make, check and import bundles');
  const print = (text: string) => void terminal.stdout.write(`${text}\n`);
  withSelection(
    bundle
      .command('create')
      .description('fetch what files list, with advisories and referrers, and write it to a new folder as a bundle'),
  )
    .requiredOption('--to <folder>', 'the folder of the bundle, new or empty')
    .option('--stored', 'also everything that is mirrored now; nothing is fetched for it')
    .option(
      '--hosted <account/pattern>',
      'also what an account hosts under these names, such as default/Contoso.*; it comes into the account of the same name (repeatable)',
      hostedSelection,
    )
    .option(
      '--against <receipt>',
      'leave out what the receiver has, as its receipt says; or the folder of an earlier bundle that it has imported',
    )
    .option('--segment <size>', 'most bytes of a file of the bundle, such as 4.3GB; without it, one file')
    .option('--key <file>', 'the private key that signs it; without it, the bundle is not signed')
    .option('--expires <duration>', 'how long it may be imported, such as 30d; without it, always')
    .option('--policy', 'also the policy of all accounts; an operator applies it at the receiver')
    .option(
      '--known-bad',
      'also the lists of known bad content, as they were read here; an operator uses them at the receiver',
    )
    .option('--new-key <file>', 'also this statement with .signed about a new key, which is announced at the receiver')
    .option('--allow-missing', 'write the bundle although something that the files list cannot be had')
    .option('--dry-run', 'show the counts and bytes by kind, and write nothing')
    .action((files: string[], flags: CreateFlags) => create(environment, files, flags, terminal));
  bundle
    .command('inspect <paths...>')
    .description('show what the segments in folders, or files, are and have; does not check the signature')
    .option('--list', 'also each entry')
    .option('--policy', 'print only its policy')
    .option('--known-bad <list>', 'print only the records of this list of known bad content')
    .option('--new-key', 'print only the statement about a new key that it announces')
    .action((paths: string[], flags: InspectFlags) => inspect(paths, flags, terminal));
  bundle
    .command('import <paths...>')
    .description(
      'import a bundle: its segments in folders, or files, in any order and in several goes; or with --unsigned an OCI image layout, an archive of "docker save" or a folder of packages',
    )
    .option('--unsigned', 'also a bundle without a signature')
    .option('--older', 'also an older bundle than the last one: only content that never changes')
    .option('--name <image>', 'the name of an image in a layout or archive that has none, such as docker.io/team/app:1')
    .option('--upstream <name>', 'the upstream to which the packages of a folder belong, if there are several')
    .action((paths: string[], flags: ImportFlags) => importSegments(environment, paths, flags, terminal));
  bundle
    .command('receipt')
    .description('write what is mirrored here, so that the next bundle has only what is new')
    .requiredOption('--to <file>', 'the file of the receipt, a new one or an earlier receipt')
    .option('--key <file>', 'the private key that signs it')
    .option(
      '--hosted <account/pattern>',
      'also what an account hosts under these names, if bundles bring it (repeatable)',
      hostedSelection,
    )
    .action(async ({ to, key, hosted }: { to: string; key?: string; hosted?: HostedSelection[] }) => {
      const signing = await signingKey(key);
      const write = await receiptWriter(to);
      await withInstallation(environment, async ({ core, protocols }) => {
        const { digests: count } = await writeReceipt({ ...core, protocols }, write, { key: signing, hosted });
        print(
          `${shown(to)}: ${count} items${signing ? '' : ', not signed'}; they are kept from eviction until the next receipt`,
        );
      });
    });
  addBundleVerify(bundle, environment, terminal);
  addBundleKeys(bundle, environment, terminal);
}

async function create(
  environment: Environment,
  files: readonly string[],
  flags: CreateFlags,
  terminal: Terminal,
): Promise<void> {
  if (files.length === 0 && !flags.inUse && !flags.stored && !flags.hosted)
    throw new DomainError(
      'Invalid',
      'give a file, a folder, "-" for a list on standard input, --in-use, --stored or --hosted',
    );
  const segment = flags.segment === undefined ? undefined : parseSize(flags.segment);
  if (flags.segment !== undefined && !segment)
    throw new DomainError('Invalid', '--segment: expected a size such as 4.3GB.');
  const validFor = flags.expires === undefined ? undefined : parseDuration(flags.expires);
  if (flags.expires !== undefined && !validFor)
    throw new DomainError('Invalid', '--expires: expected a duration such as 30d.');
  const key = await signingKey(flags.key);
  const newKey = flags.newKey === undefined ? undefined : await keyStatement(flags.newKey);
  const items = await selectedItems(files, flags, terminal);
  const controller = stoppedBy(terminal);
  const { signal } = controller;
  const dryRun = flags.dryRun === true;
  const print = (text: string) => void terminal.stdout.write(`${text}\n`);
  await withInstallation(
    environment,
    async ({ core, protocols, describe }) => {
      const trust = new TrustedKeys(core.database, core.now);
      const base =
        flags.against === undefined ? undefined : await readBase({ database: core.database, trust }, flags.against);
      if (base?.isUnsigned) print(`the receipt ${shown(flags.against!)} is not signed`);
      const bar = new ProgressBar(terminal.screen);
      const report = await prefetch(
        { upstreams: core.upstreams, protocols },
        {
          ...prefetchSelection(flags),
          accountId: await accountId(core, flags.account),
          items,
          stored: flags.stored === true,
          collect: true,
          dryRun,
          signal,
          watch: (progress) => bar.show(progress),
        },
      ).finally(() => bar.clear());
      refuseMissing(report, flags, terminal);
      const policy = flags.policy ? (await core.policies.get(allAccounts))?.written : undefined;
      const made = await createBundle(
        { ...core, protocols, describe, withdrawals: core.mirror.withdrawals },
        {
          folder: flags.to,
          needed: report.needed.values(),
          hosted: flags.hosted,
          segment,
          key,
          policy: policyIn(policy),
          newKey,
          knownBad: flags.knownBad ? await core.knownBad.records() : undefined,
          base,
          audience: base?.audience,
          validFor,
          dryRun,
          watch: (bytes, of) => bar.bytes(bytes, of),
          signal,
        },
      ).finally(() => bar.clear());
      for (const line of countLines(made.counts)) print(line);
      if (dryRun) {
        const { package: packages, blob: layers } = report.fetched;
        print(
          `to fetch: ${packages.count} packages (${binaryBytes(packages.bytes)}), ${layers.count} layers (${binaryBytes(layers.bytes)})`,
        );
      }
      if (base) print(`left out: ${made.base.count} items (${binaryBytes(made.base.bytes)}) that the receiver has`);
      const { segments, bytes } = made.header;
      const what = `${segments} ${segments === 1 ? 'segment' : 'segments'} with ${binaryBytes(bytes)} of content`;
      if (dryRun) print(`without what is to fetch: ${what}`);
      else print(`${shown(flags.to)}: ${what}, ${key ? `signed by ${key.id.slice(0, 16)}` : 'not signed'}; ${made.id}`);
    },
    { level: 'silent', creates: !dryRun && !flags.stored && !flags.inUse && !flags.hosted },
  );
}

/** Throws if something is missing and may not be. */
function refuseMissing(report: PrefetchReport, { allowMissing, dryRun }: CreateFlags, terminal: Terminal): void {
  printMissing(report.missing, terminal);
  for (const [what, reason] of report.skipped) terminal.stdout.write(`left out: ${shown(what)}: ${shown(reason)}\n`);
  if (report.interrupted)
    throw new DomainError('Aborted', 'stopped before the end; run the same command again to continue');
  if (report.missing.length > 0 && !allowMissing && !dryRun)
    throw new DomainError(
      'NotFound',
      `${report.missing.length} missing, so no bundle was written. --allow-missing writes it without them`,
    );
}

async function inspect(paths: readonly string[], flags: InspectFlags, terminal: Terminal): Promise<void> {
  await using opened = await openBundle(paths);
  const { id, list, envelope } = opened;
  const { header, entries, blobs } = list;
  const print = (text: string) => void terminal.stdout.write(`${text}\n`);
  if (flags.policy) {
    if (header.policy === null) throw new DomainError('NotFound', 'The bundle has no policy.');
    terminal.stdout.write(header.policy.endsWith('\n') ? header.policy : `${header.policy}\n`);
    return;
  }
  if (flags.knownBad !== undefined) {
    if (!header.known_bad?.some(({ name }) => name === flags.knownBad))
      throw new DomainError('NotFound', `The bundle has no list of known bad content with the name ${flags.knownBad}.`);
    for (const { list: name, record } of list.knownBad ?? [])
      if (name === flags.knownBad) print(JSON.stringify(record));
    return;
  }
  if (flags.newKey) {
    if (header.new_key === undefined) throw new DomainError('NotFound', 'The bundle announces no new key.');
    terminal.stdout.write(header.new_key);
    return;
  }
  const base = blobs.filter((each) => 'base' in each).length;
  const lacking = await opened.lacking(blobs);
  print(`bundle ${id}`);
  print(`made: ${new Date(header.created_at).toISOString()} by the installation ${header.source}`);
  if (header.expires_at !== null) print(`valid until: ${new Date(header.expires_at).toISOString()}`);
  if (header.audience !== null) print(`for the installation: ${header.audience}`);
  const keys = envelope.signatures.map(({ keyId }) => shown(keyId));
  print(keys.length === 0 ? 'signature: none' : `signature: by the key ${keys.join(', ')}, not checked`);
  print(
    `segments: ${header.segments}${lacking.length === 0 ? ', all here' : `, not here: ${lacking.map(segmentName).join(', ')}`}`,
  );
  for (const line of countLines(await countsIn(entries))) print(line);
  print(`content: ${binaryBytes(header.bytes)}${base > 0 ? `; ${base} items are expected at the receiver` : ''}`);
  if (header.policy !== null) print('policy: yes; --policy prints it');
  if (header.known_bad) print(`lists of known bad content: ${namedLists(header.known_bad)}; --known-bad prints one`);
  if (header.new_key !== undefined)
    print(
      `new key: ${readKeyStatement(header.new_key, 'its announcement').key.id}, not checked; --new-key prints the statement`,
    );
  if (flags.list)
    for (const { kind, name, reference, size, ...entry } of entries)
      terminal.stdout.write(row(ownerName(entry), kind, name, reference, size));
}

async function importSegments(
  environment: Environment,
  paths: readonly string[],
  { unsigned = false, older = false, ...plain }: ImportFlags,
  terminal: Terminal,
): Promise<void> {
  const controller = stoppedBy(terminal);
  const print = (text: string) => void terminal.stdout.write(`${text}\n`);
  await withInstallation(
    environment,
    async ({ core, protocols, describe }) => {
      const parts = { ...core, protocols, describe, trust: new TrustedKeys(core.database, core.now) };
      await using opened = await openAny(paths, unsigned, { core, protocols, trust: parts.trust }, plain);
      const bar = new ProgressBar(terminal.screen);
      const { signal } = controller;
      const watch = (bytes: number, of: number) => bar.bytes(bytes, of);
      const done = await importBundle(parts, opened, { unsigned, older, hosted: true, watch, signal }).finally(() =>
        bar.clear(),
      );
      if (done.lacking.length > 0) {
        const names = done.lacking.map(segmentName).join(', ');
        throw new DomainError(
          'Invalid',
          `stored ${binaryBytes(done.stored)}; nothing is shown yet, because ${names} of ${done.header.segments} segments are missing. Import them with the same command`,
        );
      }
      for (const line of countLines(done.summary)) print(line);
      const { written = 0 } = done.summary;
      print(
        `imported ${done.id}: ${written} new entries, ${binaryBytes(done.stored)} stored${done.isRepeated ? '; it was imported before' : ''}`,
      );
      if (done.header.policy !== null)
        print(
          `the bundle has a policy: "${typed('bundle inspect --policy')}" prints it, "${typed('policy apply')}" applies it`,
        );
      if (done.header.known_bad)
        print(
          `the bundle has lists of known bad content, ${namedLists(done.header.known_bad)}: "${typed('bundle inspect --known-bad')}" prints one; nothing is denied by it before the policy names its file`,
        );
      if (done.newKey) printNewKey(done.newKey, print);
      // Then running servers show it, too.
      if (written > 0) await sleep(shownWithin);
    },
    { creates: true },
  );
}

function printNewKey({ id, signer, refused }: AnnouncedKey, print: (text: string) => void): void {
  const key = id === null ? 'a new key' : `the new key ${id}`;
  if (refused !== null) print(`the bundle announces ${key}, which cannot be trusted here: ${shown(refused)}`);
  else
    print(
      `the bundle announces ${key}, signed by ${shown(signer!)}: "${typed('bundle inspect --new-key')}" prints the statement, "${typed('bundle trust add')}" trusts it`,
    );
}

/** Opens a bundle, or content of other tools, which has no signature. */
async function openAny(
  paths: readonly string[],
  unsigned: boolean,
  { core, protocols, trust }: Pick<Installation, 'core' | 'protocols'> & { trust: TrustedKeys },
  plain: Pick<ImportFlags, 'name' | 'upstream'>,
): Promise<OpenBundle> {
  if (!(await isPlain(paths))) return openBundle(paths, (envelope) => trust.signerOfBundle(envelope, unsigned));
  if (!unsigned)
    throw bundleInvalid(
      `${paths.join(', ')}: this is no bundle. Content of other tools is not signed, so its source is not known. Import it with --unsigned`,
    );
  const options = { accountId: core.defaultAccount.id, ...plain };
  const entriesIn = async function* (source: PlainSource) {
    for (const each of protocols) if (each.plainEntries) yield* each.plainEntries(source, options);
  };
  const own = { source: await installationIdentity(core.database), now: core.now() };
  return openPlain(paths, core.upstreams, entriesIn, own);
}

function namedLists(lists: NonNullable<BundleHeader['known_bad']>): string {
  return lists.map(({ name, records }) => `${shown(name)} (${records} records)`).join(', ');
}

function countLines({ packages, manifests, layers, documents }: BundleCounts): string[] {
  return Object.entries({ packages, manifests, layers, documents }).map(
    ([name, { count, bytes }]) => `${name}: ${count} (${binaryBytes(bytes)})`,
  );
}

function hostedSelection(text: string, before: readonly HostedSelection[] = []): HostedSelection[] {
  return [...before, parseHosted(text)];
}
