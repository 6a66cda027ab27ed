import type { Logger } from 'pino';
import type { Config } from '../../config/schema.ts';
import type { Database } from '../../database/database.ts';
import { BackgroundRuns, type RunSignals } from '../../jobs/background-runs.ts';
import { matcher } from '../../mirror/policy/upstream-policy.ts';
import { DomainError } from '../../runtime/errors.ts';
import { PrivateHosts } from '../../upstream/private-hosts.ts';
import { runImport } from '../import.ts';
import type { Importable, ImportOutcome } from '../item.ts';
import { parseNameRule, renamed } from '../name-rules.ts';
import type { ImportLine } from '../report.ts';
import { checkSource, openServer } from '../source.ts';
import { maxRunProblems, maxWarnings, type ImportProblem, type ImportRun, type ImportRunProgress } from './run.ts';
import type { ImportRunSettings, ImportRunState } from './run.ts';
import { emptyProgress, ImportRunTable } from './run-table.ts';

interface ImportRunsParts {
  database: Database;
  config: Pick<Config, 'imports' | 'offline'>;
  protocols: readonly Partial<Importable>[];
  accounts: { nameOf(id: number): Promise<string | undefined> };
  /** Throws `QuotaExceeded` if the account may not store so many bytes. */
  admit: (owner: { accountId: number; accountName: string }, bytes: number) => Promise<void>;
  log: Logger;
  now: () => number;
}

/** Characters of texts of a source that are kept. */
const maxText = 300;
const maxNote = 500;

/** Imports that users of accounts start by `/v1`. Each runs in the process that got it, and ends with it. */
export class ImportRuns {
  readonly #parts: ImportRunsParts;
  readonly #reach: PrivateHosts;
  readonly #background: BackgroundRuns;
  readonly table: ImportRunTable;

  constructor(parts: ImportRunsParts) {
    this.#parts = parts;
    this.#reach = new PrivateHosts(
      parts.config.imports.allow,
      'it is not public; the setting imports.allow can allow private servers',
    );
    this.table = new ImportRunTable(parts.database, parts.now);
    this.#background = new BackgroundRuns('import', this.table.rows, parts.log);
  }

  /** Starts an import into an account. The secret is kept in memory until its end. Throws `Invalid` and `TooManyRequests`. */
  async start(accountId: number, settings: ImportRunSettings, secret: string | undefined): Promise<ImportRun> {
    this.#check(settings);
    const id = await this.table.begin(accountId, settings);
    return this.#begin(accountId, id, settings, secret);
  }

  /** Starts a run again that has ended; what is here already is skipped. Throws `NotFound`, `Invalid` and `TooManyRequests`. */
  async resume(accountId: number, id: string, secret: string | undefined): Promise<ImportRun> {
    const { settings } = await this.table.get(accountId, id);
    if (settings.needsSecret && secret === undefined)
      throw wrong('secret', 'Send the secret of the source again: it is not stored.');
    this.#check(settings);
    await this.table.resume(accountId, id);
    return this.#begin(accountId, id, settings, settings.needsSecret ? secret : undefined);
  }

  /** Ends the runs. */
  close(): Promise<void> {
    return this.#background.close();
  }

  /** Throws `Invalid`, which names the wrong field. */
  #check({ kind, url, rename }: ImportRunSettings): void {
    named('url', () => checkSource(kind, url));
    if (/[?#]/.test(url)) throw wrong('url', 'It is stored, so it cannot have a query. Send credentials as secret.');
    named('rename', () => rename.forEach(parseNameRule));
  }

  #begin(accountId: number, id: string, settings: ImportRunSettings, secret: string | undefined): Promise<ImportRun> {
    const progress = emptyProgress();
    const problems = new Problems(this.table, id);
    this.#background.start<ImportRunState>(id, progress, {
      run: (signals) => this.#run(accountId, settings, secret, { progress, problems }, signals),
      beat: () => problems.write(),
      ending: () => problems.write().catch((err: unknown) => this.#parts.log.warn({ import: id, err }, notWritten)),
    });
    return this.table.get(accountId, id);
  }

  async #run(
    accountId: number,
    settings: ImportRunSettings,
    secret: string | undefined,
    { progress, problems }: { progress: ImportRunProgress; problems: Problems },
    { any }: RunSignals,
  ): Promise<ImportRunState> {
    const { accounts, admit, config, log, now, protocols } = this.#parts;
    const { kind, url, user, since, only, names, dryRun, hosted, moveTags, concurrency, rate } = settings;
    const owner = { accountId, accountName: (await accounts.nameOf(accountId)) ?? '' };
    await using stack = new AsyncDisposableStack();
    const { check, resolve } = this.#reach;
    // A proxy would look names up that nothing has checked.
    const parts = { log, now, proxy: {}, offline: config.offline, signal: any, reach: { check, resolve } };
    const sources = await openServer(kind, url, { secret, user }, parts, stack);
    if (sources.length > 1 && names.length > 0)
      throw wrong('names', 'Name the address of one repository, because this source has several.');
    const rules = settings.rename.map(parseNameRule);
    const fixed = {
      accountId,
      dryRun,
      since,
      names: names.length > 0 ? names : undefined,
      isWanted: only.length > 0 ? matcher(only) : () => true,
      nameHere: (name: string) => renamed(name, rules),
      allHosted: hosted,
      moveTags,
      // The scope admin of a token without name patterns.
      permit: () => undefined,
      admit: (bytes: number) => admit(owner, bytes),
    };
    const report = await runImport(
      (signal, warn) =>
        sources.flatMap((source) =>
          protocols.flatMap((each) => each.importFrom?.(source, { ...fixed, signal, warn }) ?? []),
        ),
      {
        concurrency,
        rate,
        signal: any,
        watch: ({ known, ended, received }) => Object.assign(progress, { known, ended, received }),
        onLine: (line) => {
          progress.counts[line.outcome].count += 1;
          progress.counts[line.outcome].bytes += line.bytes;
          problems.add(line);
        },
      },
    );
    progress.warnings = report.warnings.slice(0, maxWarnings).map((each) => forApi(each, maxNote));
    if (any.aborted) return 'interrupted';
    if (report.stopped === undefined) return 'done';
    progress.error = forApi(report.stopped, maxNote);
    return 'stopped';
  }
}

const notWritten = 'the failures of an import were not recorded';

/** The conflicts and failures of a run, written some at a time. */
class Problems {
  readonly #table: ImportRunTable;
  readonly #id: string;
  #waiting: ImportProblem[] = [];
  #writing: Promise<void> = Promise.resolve();
  #count = 0;

  constructor(table: ImportRunTable, id: string) {
    this.#table = table;
    this.#id = id;
  }

  add({ outcome, name, reference, note = '' }: ImportLine): void {
    if (!problematic.has(outcome) || this.#count === maxRunProblems) return;
    this.#count += 1;
    this.#waiting.push({
      position: this.#count,
      outcome,
      name: forApi(name, maxText),
      reference: forApi(reference, maxText),
      note: forApi(note, maxNote),
    });
  }

  /** One write at a time; what a failed one had is written by the next. */
  write(): Promise<void> {
    const work = this.#writing.then(() => this.#writeAll());
    this.#writing = work.catch(() => undefined);
    return work;
  }

  async #writeAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const written = this.#waiting.slice(0, 500);
      await this.#table.addProblems(this.#id, written);
      this.#waiting = this.#waiting.slice(written.length);
    }
  }
}

const problematic = new Set<ImportOutcome>(['conflict', 'failed']);

/** A text with the names of fields in place of options of the command, cut to a length. */
function forApi(text: string, most: number): string {
  const named = text
    .replace(/List (?:them|the packages) in a file, and name it with --names/, 'Send them in names')
    .replace('with --hosted', 'with hosted')
    .replace('Give it with --token-file', 'Send it as secret')
    .replace('--move-tags moves', 'move_tags moves')
    .toWellFormed();
  return named.length > most ? `${named.slice(0, most - 1).toWellFormed()}…` : named;
}

function named(field: string, check: () => void): void {
  try {
    check();
  } catch (error) {
    throw error instanceof DomainError ? wrong(field, forApi(error.message, maxNote)) : error;
  }
}

function wrong(field: string, message: string): DomainError {
  return new DomainError('Invalid', `${field}: ${message}`, { detail: { errors: [{ field, message }] } });
}
