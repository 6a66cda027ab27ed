import { access, mkdir, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { Command } from 'commander';
import { destination, pino } from 'pino';
import { typed } from '../runtime/command-name.ts';
import { openArchive, readArchive } from '../backup/archive.ts';
import { backUp } from '../backup/backup.ts';
import { hashBlob, readBackup, type Problem } from '../backup/check.ts';
import { openFolder, readFolder, type Folder } from '../backup/folder.ts';
import type { Member } from '../backup/format.ts';
import { holdersOf, restore } from '../backup/restore.ts';
import { loadConfig, type Environment } from '../config/load.ts';
import { parseSize } from '../config/units.ts';
import { inBackground } from '../server/core.ts';
import { folderStorage, openRestoreTarget } from '../server/place.ts';
import { DomainError } from '../runtime/errors.ts';
import { allReferences } from '../server/installation.ts';
import type { StagedFile } from '../storage/files/staged-file.ts';
import { verifyPlace } from '../storage/upkeep/verify.ts';
import { binaryBytes } from './progress.ts';
import { stoppedBy, withInstallation, type Terminal } from './with-installation.ts';

type Say = (line: string) => void;

/** Bytes per second that a backup and a check read by default, so that clients hardly notice it. */
const defaultRate = '64MiB';
/** Damaged blobs that an error names. */
const maxNamed = 10;

const kept =
  'not in the backup: the settings, and the key file of webhooks and bills of materials (setting secretKeyFile). Keep both separately';

/** `entrepot backup`, `entrepot restore` and `entrepot verify` */
export function addBackup(program: Command, environment: Environment, terminal: Terminal): void {
  const say: Say = (line) => void terminal.stdout.write(`${line}\n`);
  const rate: [string, string, string] = ['--rate <size>', 'most bytes per second to read', defaultRate];
  program
    .command('backup <target>')
    .description(
      'write all content and data to a new folder, or to a new file whose name ends with .tar, while servers run',
    )
    .option('--incremental', 'renew the backup in a folder: copy only new content')
    .option('--check', 'compare all content of the earlier backup with its digests, not only a share of it')
    .option('--without-mirrored', 'leave out mirrored content that can be fetched again')
    .option(...rate)
    .action((target: string, options: BackupFlags) =>
      stoppable(terminal, 'The backup was stopped, and is not complete.', (signal) =>
        writeBackup(environment, target, options, say, signal),
      ),
    );
  program
    .command('restore <source>')
    .description('restore a backup into the database and the storage of the settings, which must be empty')
    .option('--without-damaged', 'leave out content that is missing or damaged in the backup, and name it')
    .action((source: string, options: { withoutDamaged?: boolean }) =>
      stoppable(terminal, 'The restore was stopped. Run the command again to finish it.', (signal) =>
        restoreBackup(environment, source, options.withoutDamaged ?? false, say, signal),
      ),
    );
  program
    .command('verify [source]')
    .description('check a backup, or without it the content that is stored now: every byte against its digest')
    .option(...rate)
    .action((source: string | undefined, options: { rate: string }) =>
      source === undefined
        ? verifyContent(environment, options, say)
        : stoppable(terminal, 'The check was stopped before its end.', (signal) => verifyBackup(source, say, signal)),
    );
}

/** Work with copies of all rows, which it removes also when a person or the system stops the command. */
async function stoppable(
  terminal: Terminal,
  message: string,
  work: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const { signal } = stoppedBy(terminal, new DomainError('Aborted', message));
  try {
    await work(signal);
  } catch (error) {
    // Some steps say only that they were aborted.
    signal.throwIfAborted();
    throw error;
  }
}

interface BackupFlags {
  incremental?: boolean;
  check?: boolean;
  withoutMirrored?: boolean;
  rate: string;
}

async function writeBackup(
  environment: Environment,
  target: string,
  flags: BackupFlags,
  say: Say,
  signal: AbortSignal,
): Promise<void> {
  const { incremental = false, check = false, withoutMirrored = false } = flags;
  const rate = rateOf(flags);
  const isTar = await isArchive(target);
  if (isTar && incremental)
    throw new DomainError('Invalid', '--incremental needs a folder; a .tar file cannot be renewed.');
  if (check && !incremental) throw new DomainError('Invalid', '--check needs --incremental.');
  await withInstallation(environment, async ({ core, references }) => {
    await using opened = isTar ? await openArchive(resolve(target)) : await openFolder(folderOf(target), incremental);
    const done = await backUp({ ...core, references }, opened, {
      mirrored: !withoutMirrored,
      rate,
      checkAll: check,
      signal,
    });
    const { rows, blobs, bytes, copied, copiedBytes, checked, damaged, missing } = done;
    say(
      `${target}: ${rows} rows, ${blobs} blobs, ${binaryBytes(bytes)}; copied ${copied}, ${binaryBytes(copiedBytes)}`,
    );
    if (checked > 0) say(`compared ${checked} blobs of the earlier backup with their digests`);
    const lost = new Set(missing);
    for (const digest of damaged)
      say(`damaged in the earlier backup: ${digest}${lost.has(digest) ? '' : ', which was copied again'}`);
    say(kept);
    if (missing.length === 0) return;
    const names = missing.slice(0, maxNamed).join(', ');
    throw new DomainError(
      'Invalid',
      `The backup is complete, but ${missing.length} blobs are missing or damaged in the storage itself: ${names}. "${typed('verify')}" shows what needs them.`,
    );
  });
}

async function restoreBackup(
  environment: Environment,
  source: string,
  withoutDamaged: boolean,
  say: Say,
  signal: AbortSignal,
): Promise<void> {
  const config = loadConfig(environment);
  const log = pino({ level: 'warn' }, destination(2));
  await inBackground(async () => {
    const command = { creates: true };
    await using opened = await openSource(source);
    await using place = await openRestoreTarget(config, { log, now: Date.now, command });
    const { manifest, missing, damaged } = await restore(place, opened.members, { withoutDamaged, signal });
    const { blobs, created_at, mirrored } = manifest;
    say(`restored the backup of ${created_at}: ${blobs.count} blobs, ${binaryBytes(blobs.bytes)}`);
    if (!mirrored)
      say('the backup has no mirrored content that can be fetched again; it is fetched when it is requested');
    const references = allReferences();
    for (const { kind, digest } of damaged) {
      const holders = await holdersOf(place.database, references, digest);
      say(`${kind} in the backup: ${digest}${holders.length > 0 ? `; needed by ${holders.join(', ')}` : ''}`);
    }
    if (damaged.length > 0)
      say(`left out ${damaged.length} blobs; what needs them cannot be pulled until it is pushed or fetched again`);
    for (const each of missing) say(`${each.kind} already when the backup was made: ${each.digest}`);
    say('if servers use Redis, empty it before they start: it may have values of another state');
  });
}

async function verifyContent(environment: Environment, flags: { rate: string }, say: Say): Promise<void> {
  const rate = rateOf(flags);
  await withInstallation(environment, async ({ core: { database, driver }, references }) => {
    const { blobs, bytes, problems } = await verifyPlace({ database, driver, references }, rate, say);
    say(`checked ${blobs} blobs, ${binaryBytes(bytes)}`);
    refuseProblems(problems);
  });
}

async function verifyBackup(source: string, say: Say, signal: AbortSignal): Promise<void> {
  await using stack = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'entrepot-verify-'));
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const { paths } = folderStorage(folder);
  await mkdir(paths.staging);
  const opened = stack.use(await openSource(source));
  const files = new Map<string, StagedFile>();
  stack.defer(async () => {
    for (const file of files.values()) await file.close();
  });
  const { manifest, problems, known } = await readBackup(opened.members, paths, files, hashBlob, {
    keepRows: false,
    signal,
  });
  const show = ({ kind, digest }: Problem, note: string) => say(`${kind} ${digest}${note}`);
  for (const each of problems) show(each, '');
  for (const each of known) show(each, ': already when the backup was made');
  const { blobs, created_at } = manifest;
  say(`checked the backup of ${created_at}: ${blobs.count} blobs, ${binaryBytes(blobs.bytes)}`);
  refuseProblems(problems.length + known.length);
}

function refuseProblems(problems: number): void {
  if (problems > 0) throw new DomainError('Invalid', `${problems} blobs are missing or damaged; see above`);
}

interface OpenSource extends AsyncDisposable {
  members: AsyncIterable<Member>;
}

async function openSource(source: string): Promise<OpenSource> {
  await access(source).catch((error: NodeJS.ErrnoException) => {
    throw new DomainError('Invalid', `${source} cannot be read: ${error.message}`);
  });
  if (await isArchive(source)) return { members: readArchive(source), [Symbol.asyncDispose]: () => Promise.resolve() };
  const folder = folderOf(source);
  return { members: readFolder(folder), [Symbol.asyncDispose]: () => folder.driver.close() };
}

function folderOf(path: string): Folder {
  return { path: resolve(path), ...folderStorage(resolve(path)) };
}

/** Whether the path is a file, or will be one. */
async function isArchive(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found ? !found.isDirectory() : path.endsWith('.tar');
}

function rateOf({ rate }: { rate: string }): number {
  const bytes = parseSize(rate);
  if (bytes === undefined || bytes < 1) throw new DomainError('Invalid', '--rate needs a size such as 64MiB.');
  return bytes;
}
