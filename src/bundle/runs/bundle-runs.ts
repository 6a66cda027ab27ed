import { readFile } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import type { Logger } from 'pino';
import { DomainError } from '../../runtime/errors.ts';
import { Semaphore } from '../../runtime/semaphore.ts';
import type { Config } from '../../config/schema.ts';
import { BackgroundRuns, type RunSignals } from '../../jobs/background-runs.ts';
import { resultOf, type PrefetchFile } from '../../jobs/prefetch-run.ts';
import type { PrefetchItem } from '../../prefetch/item.ts';
import { prefetch, type PrefetchParts } from '../../prefetch/prefetch.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import { createBundle, type CreateParts } from '../create.ts';
import type { BundleBad } from '../format.ts';
import { importBundle, type ImportParts } from '../import.ts';
import type { SigningKey } from '../../runtime/dsse.ts';
import { readSigningKey } from '../keys.ts';
import { openBundle } from '../read.ts';
import { readReceipt, writeReceipt, type Receipt } from '../receipt.ts';
import { writeDurably } from '../write.ts';
import { checkSegments } from './check-run.ts';
import type {
  BundleRun,
  BundleRunProgress,
  BundleRunState,
  ImportedRun,
  ImportSettings,
  MadeRun,
  MakeSettings,
} from './run.ts';
import type { BundleRunFiles } from './run-files.ts';
import type { BundleRunTable } from './run-table.ts';

interface BundleRunsParts extends CreateParts, ImportParts {
  protocols: readonly (PrefetchParts['protocols'][number] & ImportParts['protocols'][number])[];
  table: BundleRunTable;
  files: BundleRunFiles;
  /** Reads files in a way that cannot take the server's time or memory. Throws `Invalid`. */
  read: (files: readonly (PrefetchFile & { kind?: string | undefined })[]) => Promise<PrefetchItem[]>;
  /** The policy of all accounts, as text. */
  policy: () => Promise<string | undefined>;
  /** The records of the lists of known bad content. Throws `NotFound` if there are none. */
  knownBad: () => Promise<readonly BundleBad[]>;
  config: Pick<Config, 'prefetch' | 'bundles'>;
  log: Logger;
}

const notRemoved = 'old files of bundles were not removed';
/** Most segments that this process receives at a time. */
const maxReceiving = 8;

/** Makings and imports of bundles that operators start by `/v1`. Each runs in the process that got it, and ends with it. */
export class BundleRuns {
  readonly #parts: BundleRunsParts;
  readonly #background: BackgroundRuns;
  readonly #receiving = new Semaphore({ max: maxReceiving, maxWaiting: 0 });
  readonly #receipts = new Semaphore({ max: 1, maxWaiting: 0 });

  constructor(parts: BundleRunsParts) {
    this.#parts = parts;
    this.#background = new BackgroundRuns('bundle', parts.table.rows, parts.log);
  }

  get table(): BundleRunTable {
    return this.#parts.table;
  }

  get files(): BundleRunFiles {
    return this.#parts.files;
  }

  /** Whether bundles that are made are signed. */
  get signs(): boolean {
    return this.#parts.config.bundles.key !== undefined;
  }

  /** Most bytes of a segment that is received. */
  get segmentLimit(): number {
    return this.#parts.config.bundles.segment;
  }

  /** Throws `NotFound`. */
  makingOf(id: string): Promise<MadeRun> {
    return this.#parts.table.get('made', id);
  }

  /** Throws `NotFound`. */
  importOf(id: string): Promise<ImportedRun> {
    return this.#parts.table.get('imported', id);
  }

  /** Reads a receipt that was received. Throws `Invalid`, and `Denied` if its key is not trusted. */
  async readReceipt(staged: StagedFile): Promise<Receipt> {
    return readReceipt(this.#parts.trust, staged.path).catch((error: unknown) => {
      throw forClients(error, staged.path, 'the receipt');
    });
  }

  /** A file for a receipt that is being received. Throws `StorageFull`. */
  stage(): Promise<StagedFile> {
    return this.#parts.blobs.stageHosted(0, []);
  }

  /** Writes a receipt into a file of this server, in place of the last one. Throws `Invalid`, and `TooManyRequests` while another is written. */
  async writeReceipt(): Promise<ReceiptResult> {
    const release = await this.#receipts.take('');
    if (!release)
      throw new DomainError('TooManyRequests', 'A receipt is written now. Try again later.', { retryAfter: 10 });
    try {
      const key = await this.#signingKey();
      const { files } = this.#parts;
      const file = await files.receiptFile();
      const written = await writeReceipt(this.#parts, (bytes) => writeDurably(file, bytes), { key });
      return { ...written, key: key?.id ?? null };
    } finally {
      release();
    }
  }

  /** Starts to make a bundle. Throws `Invalid` or `TooManyRequests`. */
  async make(
    accountId: number,
    settings: MakeSettings,
    files: readonly PrefetchFile[],
    receipt: Receipt | undefined,
  ): Promise<MadeRun> {
    const { table, read } = this.#parts;
    const key = await this.#signingKey();
    const items = await read(files.map((each) => ({ ...each, kind: settings.kind })));
    if (items.length === 0 && !settings.stored)
      throw new DomainError('Invalid', 'The files list no package and no image from an upstream.');
    const id = await table.make({ ...settings, against: receipt?.id });
    const make = (progress: BundleRunProgress, signals: RunSignals) =>
      this.#make(id, accountId, settings, { items, receipt, key }, progress, signals);
    this.#start(id, make, (ended) => ended === 'done');
    return table.get('made', id);
  }

  /** Begins an import. Throws `TooManyRequests`. */
  async beginImport(): Promise<ImportedRun> {
    const { table, files } = this.#parts;
    const id = await table.beginImport();
    await files.create(id);
    return table.get('imported', id);
  }

  /** Receives a segment of an import; resolves to its bytes. Throws as `BundleRunTable.receive` and `BundleRunFiles.receive`, and `TooManyRequests`. */
  async receive(id: string, number: number, source: Readable, options: ReceiveOptions): Promise<number> {
    const { table, files, config } = this.#parts;
    const release = await this.#receiving.take('');
    if (!release)
      throw new DomainError('TooManyRequests', `${maxReceiving} segments are received now. Send this one later.`, {
        retryAfter: 10,
      });
    try {
      await table.receive(id);
      const size = await files.receive(id, number, source, { ...options, limit: config.bundles.segment });
      await table.receive(id);
      return size;
    } finally {
      release();
    }
  }

  /** Starts to import the segments that were received. Throws as `BundleRunTable.startImport`, and `Invalid` without a segment. */
  async runImport(id: string, settings: ImportSettings): Promise<ImportedRun> {
    const { table, files } = this.#parts;
    const { state } = await table.get('imported', id);
    if (state !== 'done' && state !== 'expired' && (await files.segments(id)).length === 0)
      throw new DomainError('Invalid', 'No segment of this import is on this server. Send at least one.');
    await table.startImport(id, settings);
    // The segments stay until all of the bundle is imported, so that one can be replaced.
    this.#start(id, (progress, signals) => this.#import(id, settings, progress, signals), isUnfinished);
    return table.get('imported', id);
  }

  /** Stops a run, or gives up what does not run, with its files. Throws `NotFound`. */
  async cancel(direction: BundleRun['direction'], id: string): Promise<void> {
    const { table, files } = this.#parts;
    if (!(await table.cancel(direction, id))) await files.remove(id);
  }

  /** Opens a segment of a bundle that was made. Throws `NotFound`. */
  async open(id: string, number: number) {
    const { table, files } = this.#parts;
    const { state } = await table.get('made', id);
    if (state !== 'done') throw new DomainError('NotFound', `This bundle is not made: it is ${state}.`);
    return files.open(id, number);
  }

  /** Removes the files that are not kept any more. */
  async clean(): Promise<void> {
    const { table, files } = this.#parts;
    await files.removeOthers(() => table.withFiles());
  }

  /** Ends the runs. */
  async close(): Promise<void> {
    await this.#background.close();
  }

  async #signingKey(): Promise<SigningKey | undefined> {
    const file = this.#parts.config.bundles.key;
    if (file === undefined) return undefined;
    const pem = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      this.#parts.log.error({ err: error }, 'the key that signs bundles cannot be read');
      throw new DomainError('Invalid', `The file in the setting bundles.key cannot be read: ${error.code}.`);
    });
    return readSigningKey(pem, 'the setting bundles.key');
  }

  #start(
    id: string,
    run: (progress: BundleRunProgress, signals: RunSignals) => Promise<BundleRunState>,
    isKept: (state: BundleRunState) => boolean,
  ): void {
    const { files, log } = this.#parts;
    const progress: BundleRunProgress = {};
    this.#background.start<BundleRunState>(id, progress, {
      run: (signals) => run(progress, signals),
      explain: (error) => forClients(error, `${files.folderOf(id)}/`, ''),
      ending: async (state) => {
        if (!isKept(state)) await files.remove(id).catch((err: unknown) => log.warn({ bundle: id, err }, notRemoved));
      },
      ended: () => this.clean().catch((err: unknown) => log.warn({ err }, notRemoved)),
    });
  }

  async #make(
    id: string,
    accountId: number,
    settings: MakeSettings,
    {
      items,
      receipt,
      key,
    }: { items: readonly PrefetchItem[]; receipt: Receipt | undefined; key: SigningKey | undefined },
    progress: BundleRunProgress,
    { stop, closing, any }: RunSignals,
  ): Promise<BundleRunState> {
    const { files, blobs, now, config, policy, knownBad, upstreams, protocols } = this.#parts;
    const { concurrency, rate, rateLimitShare } = config.prefetch;
    const { platforms, frameworks, referrers, stored } = settings;
    const report = await prefetch(
      { upstreams, protocols },
      {
        platforms,
        frameworks,
        referrers,
        stored,
        accountId,
        items,
        concurrency,
        rate,
        now,
        collect: true,
        dryRun: false,
        rateLimitShare: rateLimitShare / 100,
        signal: closing,
        stop,
        watch: ({ known, ended, received, waiting }) => Object.assign(progress, { known, ended, received, waiting }),
      },
    );
    if (report.interrupted) return 'interrupted';
    const { missing, missingTotal } = resultOf(report);
    Object.assign(progress, { missing, missingTotal, waiting: undefined });
    if (missingTotal > 0 && !settings.allowMissing)
      throw new DomainError(
        'NotFound',
        `${missingTotal} things that the files list cannot be had, so no bundle was made.`,
      );
    await files.create(id);
    const made = await createBundle(this.#parts, {
      folder: files.folderOf(id),
      needed: report.needed.values(),
      segment: settings.segment,
      base: receipt && { id: receipt.id, digests: receipt.digests },
      key,
      audience: receipt?.installation,
      validFor: settings.validFor,
      policy: settings.policy ? await policy() : undefined,
      newKey: settings.newKey,
      knownBad: settings.knownBad ? await knownBad() : undefined,
      dryRun: false,
      admit: (bytes) => blobs.admit(bytes),
      watch: (bytes, of) => Object.assign(progress, { bytes, of }),
      signal: any,
    });
    const { segments, bytes } = made.header;
    progress.result = {
      id: made.id,
      counts: made.counts,
      segments,
      bytes,
      key: key?.id ?? null,
      policy: made.header.policy !== null,
      knownBad: made.header.known_bad,
    };
    return 'done';
  }

  async #import(
    id: string,
    { unsigned, older, check = false }: ImportSettings,
    progress: BundleRunProgress,
    { any }: RunSignals,
  ): Promise<BundleRunState> {
    const { files, trust } = this.#parts;
    await using opened = await openBundle([files.folderOf(id)], (each) => trust.signerOfBundle(each, unsigned));
    if (check) return await checkSegments(this.#parts, opened, unsigned, progress, any);
    const done = await importBundle(this.#parts, opened, {
      unsigned,
      older,
      // Operators neither read nor write by HTTP what accounts host.
      hosted: false,
      watch: (bytes, of) => Object.assign(progress, { bytes, of }),
      signal: any,
    });
    const { packages, manifests, layers, documents, segments, bytes, key, written } = done.summary;
    progress.lacking = done.lacking;
    progress.result = {
      id: done.id,
      counts: { packages, manifests, layers, documents },
      segments,
      bytes,
      key,
      written,
      policy: done.header.policy !== null,
      knownBad: done.header.known_bad,
      newKey: done.newKey,
    };
    return done.lacking.length === 0 ? 'done' : 'incomplete';
  }
}

/** A receipt that was written, and the key that signed it; null without a signature. */
type ReceiptResult = Awaited<ReturnType<typeof writeReceipt>> & { key: string | null };

interface ReceiveOptions {
  idle?: number | undefined;
  announced: number;
  consume: boolean;
}

/** A domain error as people read it who do not use the command: without paths of this server, and with the names of fields. */
function forClients(error: unknown, path: string, shown: string): unknown {
  if (!(error instanceof DomainError)) return error;
  const message = error.message
    .replaceAll(path, shown)
    .replace(/[Rr]un the same command again with a good copy/, 'Send a good copy of it, and run the import again')
    .replace('--unsigned', 'the option unsigned')
    .replace('--older', 'the option older');
  return new DomainError(error.name, message, { detail: error.detail, cause: error });
}

function isUnfinished(state: BundleRunState): boolean {
  return state !== 'done';
}
