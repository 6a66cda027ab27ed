import { writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { refuseImport } from '../bundle/examine.ts';
import { segmentName } from '../bundle/format.ts';
import { hosts } from '../bundle/hosted.ts';
import type { Envelope } from '../bundle/keys.ts';
import { mirrorWith } from '../bundle/overlay.ts';
import { openBundle, type OpenBundle } from '../bundle/read.ts';
import { sbomOf } from '../bundle/sbom.ts';
import { TrustedKeys } from '../bundle/trust.ts';
import { checkBytes } from '../bundle/verify.ts';
import { statementType } from '../bundle/write.ts';
import type { Environment } from '../config/load.ts';
import type { PrefetchItem } from '../prefetch/item.ts';
import { prefetch } from '../prefetch/prefetch.ts';
import type { Missing } from '../prefetch/report.ts';
import { withPauses } from '../runtime/event-loop.ts';
import { DomainError, isDomainError } from '../runtime/errors.ts';
import { version } from '../runtime/package.ts';
import type { Installation } from '../server/installation.ts';
import { flagOfNew } from './new-file.ts';
import { shown } from './printed.ts';
import { printMissing } from './prefetch.ts';
import { binaryBytes, ProgressBar } from './progress.ts';
import { meaningToPrefetch, selectedItems, withMeaning, type MeaningFlags } from './selection.ts';
import { accountId, withInstallation, type Terminal } from './with-installation.ts';

interface VerifyFlags extends MeaningFlags {
  for?: string[];
  sbom?: string;
  unsigned?: boolean;
}

/** `entrepot bundle verify` */
export function addBundleVerify(bundle: Command, environment: Environment, terminal: Terminal): void {
  const command = bundle
    .command('verify <paths...>')
    .description('check the signature and every byte of the segments in folders, or files; imports nothing')
    .option(
      '--for <files...>',
      'instead of the bytes: whether all that these files list would be here after the import',
    )
    .option('--sbom <file>', 'write the packages and images of the bundle to a new file, as CycloneDX')
    .option('--unsigned', 'also a bundle without a signature');
  withMeaning(command).action((paths: string[], flags: VerifyFlags) => verify(environment, paths, flags, terminal));
}

async function verify(
  environment: Environment,
  paths: readonly string[],
  flags: VerifyFlags,
  terminal: Terminal,
): Promise<void> {
  const print = (text: string) => void terminal.stdout.write(`${text}\n`);
  await withInstallation(environment, async (installation) => {
    const { database, now } = installation.core;
    const signer = async (envelope: Envelope) => {
      const key = await new TrustedKeys(database, now).signerOf(statementType, envelope, 'bundles', 'The bundle');
      if (key || flags.unsigned) return key;
      throw new DomainError('Denied', 'The bundle is not signed. --unsigned checks the rest of it.');
    };
    await using opened = await openBundle(paths, signer);
    const { id, list, envelope } = opened;
    const key = await signer(envelope);
    print(`bundle ${id}, ${key ? `signed by ${shown(key.name)}` : 'not signed'}`);
    if (flags.sbom !== undefined) {
      const flag = await flagOfNew(flags.sbom);
      await writeFile(flags.sbom, `${JSON.stringify(sbomOf(id, list, version), undefined, 2)}\n`, { flag });
      print(`${shown(flags.sbom)}: the bill of materials`);
    }
    const lacking = await opened.lacking(list.blobs);
    if (flags.for) await prove(installation, opened, { ...flags, for: flags.for }, terminal);
    else await checkAll(opened, terminal);
    if (lacking.length > 0)
      throw new DomainError('NotFound', `Segments are missing: ${lacking.map(segmentName).join(', ')}.`);
  });
}

async function checkAll(opened: OpenBundle, terminal: Terminal): Promise<void> {
  const controller = new AbortController();
  terminal.once('SIGINT', () => controller.abort());
  const bar = new ProgressBar(terminal.screen);
  const watch = (bytes: number, of: number) => bar.bytes(bytes, of);
  const { count, bytes, damaged, base } = await checkBytes(opened, { watch, signal: controller.signal }).finally(() =>
    bar.clear(),
  );
  for (const { digest, place } of damaged) terminal.stdout.write(`damaged: ${digest} in ${shown(place)}\n`);
  const expected = base === 0 ? '' : `; ${base} items are expected at the receiver`;
  terminal.stdout.write(`checked ${count} items, ${binaryBytes(bytes)}${expected}\n`);
  if (damaged.length > 0) throw new DomainError('Invalid', `${damaged.length} items are damaged; see above`);
}

/** Finds everything that clients ask for because of the files, in the bundle and in what is stored here. Throws if an import would be refused. */
async function prove(
  { core, protocols, describe }: Installation,
  opened: OpenBundle,
  flags: VerifyFlags & { for: string[] },
  terminal: Terminal,
): Promise<void> {
  const trust = new TrustedKeys(core.database, core.now);
  await refuseImport({ ...core, protocols, describe, trust }, opened, flags.unsigned === true);
  const account = await accountId(core, flags.account);
  const items = await selectedItems(flags.for, flags, terminal);
  const hosted = await hostedAmong(protocols, opened, { id: account, name: flags.account }, items);
  const mirror = mirrorWith(core, opened);
  const report = await prefetch(
    { upstreams: core.upstreams, protocols: protocols.flatMap((each) => each.prefetchOver?.(mirror) ?? []) },
    {
      ...meaningToPrefetch(flags),
      accountId: account,
      items: hosted.others,
      isOffline: true,
      dryRun: false,
      concurrency: 4,
      rateLimitShare: 1,
      now: core.now,
      signal: new AbortController().signal,
    },
  );
  const missing = [...hosted.missing, ...report.missing];
  printMissing(missing, terminal);
  const { package: packages, manifest: manifests, blob: layers } = report.present;
  terminal.stdout.write(`found: ${packages.count} packages, ${manifests.count} manifests, ${layers.count} layers\n`);
  if (hosted.found > 0)
    terminal.stdout.write(`found: ${hosted.found} that the account ${shown(flags.account)} hosts\n`);
  if (missing.length > 0) throw new DomainError('NotFound', `${missing.length} missing; see above`);
}

/** Divides items: those whose names the bundle brings as hosted ones are found there, or here, or missing. */
async function hostedAmong(
  protocols: Installation['protocols'],
  { list }: OpenBundle,
  account: { id: number; name: string },
  items: readonly PrefetchItem[],
): Promise<{ others: PrefetchItem[]; found: number; missing: Missing[] }> {
  const result = { others: [] as PrefetchItem[], found: 0, missing: [] as Missing[] };
  const references = new Map<string, Set<string>>();
  for await (const each of withPauses(list.entries)) {
    if (each.account !== account.name) continue;
    const key = `${each.protocol} ${each.name}`;
    const known = references.get(key) ?? new Set();
    references.set(key, known.add(each.reference));
  }
  for (const item of items) {
    const meant = await askedFor(protocols, account.id, item);
    const name = meant?.names.find((each) => references.has(`${meant.protocol} ${each.toLowerCase()}`))?.toLowerCase();
    if (!meant || name === undefined) {
      result.others.push(item);
      continue;
    }
    // For a range this would ask an upstream.
    const reference = await meant.reference().catch((error: unknown) => {
      if (isDomainError(error)) return undefined;
      throw error;
    });
    if (
      reference === undefined ||
      references.get(`${meant.protocol} ${name}`)!.has(reference) ||
      (await hosts(meant.carried, account.id, { name, reference }))
    )
      result.found += 1;
    else
      result.missing.push({
        location: item.location,
        what: meant.text,
        reason: `the account ${account.name} hosts the name, and neither it nor the bundle has this`,
      });
  }
  return result;
}

/** What clients ask for because of an item, and the protocol that they speak. */
async function askedFor(protocols: Installation['protocols'], accountId: number, item: PrefetchItem) {
  for (const protocol of protocols) {
    const meaning = await protocol.meaningOf?.(accountId, item);
    if (meaning) return { ...meaning, protocol: protocol.upstreams.kind, carried: protocol.carried };
  }
  return undefined;
}
