import { jsonItem } from '../../runtime/json-item.ts';
import type { z } from 'zod';
import { DomainError } from '../../runtime/errors.ts';
import type { PrefetchResult, PrefetchRunItem, PrefetchSettings } from '../../jobs/prefetch-run.ts';
import type { PrefetchRuns } from '../../jobs/prefetch-runs.ts';
import { parsePlatform, platformText } from '../../prefetch/platform.ts';
import type { Tally } from '../../prefetch/report.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { flagIn, readPrefetchForm, wrongField } from './prefetch-form.ts';
import { prefetchForm, prefetchList, prefetchRun } from './prefetch-schemas.ts';

export interface PrefetchOperationParts {
  runs: PrefetchRuns;
  /** The kinds of files. */
  kinds: readonly string[];
  /** Milliseconds after which a silent sender is cut off. */
  idle: number;
}

const id = 'The ID of the prefetch';
/** Most platforms or frameworks. */
const maxChoices = 20;

/** `/prefetch`: fetches into the mirror that all accounts share, any name; so a token with name patterns cannot use it. */
export function prefetchOperations({ runs, kinds, idle }: PrefetchOperationParts): Operation[] {
  const action = 'operate';
  const allNames = 'A token with name patterns cannot prefetch, because files list any names.';
  return [
    operation({
      method: 'get',
      path: '/prefetch',
      id: 'listPrefetches',
      summary: 'List the latest 50 prefetches of this kind, the latest first',
      action,
      allNames,
      status: 200,
      answer: prefetchList,
      run: async () => {
        const { platforms, frameworks, referrers } = runs.defaults;
        const defaults = { platforms: [...platforms], frameworks: [...frameworks], referrers };
        return { items: (await runs.table.list()).map(itemOf), next_cursor: null, kinds: [...kinds], defaults };
      },
    }),
    operation({
      method: 'post',
      path: '/prefetch',
      id: 'startPrefetch',
      summary: 'Fetch what files list, in the background. At most 2 run at a time, and none continues after a restart',
      action,
      allNames,
      receives: { fields: prefetchForm, stores: false },
      status: 201,
      answer: prefetchRun,
      run: async ({ principal, receiving }) => {
        const fields = new Map<string, string>();
        try {
          return await runs.receive(async () => {
            const files = await readPrefetchForm(receiving!, idle, fields);
            if (files.length === 0) throw wrongField('file', 'Choose at least one file.');
            const settings = { ...prefetchSettings(fields, runs, kinds), files: files.map(({ file }) => file) };
            return itemOf(await runs.start(principal.accountId, settings, files));
          });
        } catch (error) {
          throw withFields(error, fields);
        }
      },
    }),
    operation({
      method: 'get',
      path: '/prefetch/:id',
      id: 'getPrefetch',
      summary: 'Show the progress of a prefetch, or its result',
      action,
      allNames,
      params: { id },
      status: 200,
      answer: prefetchRun,
      run: async ({ params }) => itemOf(await runs.table.get(params['id']!)),
    }),
    operation({
      method: 'post',
      path: '/prefetch/:id/fetch',
      id: 'fetchPrefetch',
      summary: 'Fetch what a dry run listed. The files of the latest 5 dry runs are kept',
      action,
      allNames,
      params: { id },
      status: 201,
      answer: prefetchRun,
      run: async ({ principal, params }) =>
        itemOf(await runs.receive(() => runs.fetch(principal.accountId, params['id']!))),
    }),
    operation({
      method: 'delete',
      path: '/prefetch/:id',
      id: 'cancelPrefetch',
      summary: 'Stop a prefetch after what it is fetching now. What it has fetched stays',
      action,
      allNames,
      params: { id },
      status: 204,
      run: ({ principal, params }) => runs.table.cancel(principal.accountId, params['id']!),
    }),
  ];
}

/** The error with the fields of the form, so that a page can show them again. */
export function withFields(error: unknown, fields: ReadonlyMap<string, string>): unknown {
  if (!(error instanceof DomainError)) return error;
  const { name, message, detail, cause, retryAfter } = error;
  return new DomainError(name, message, {
    detail: { ...detail, fields: Object.fromEntries(fields) },
    cause,
    ...(retryAfter !== undefined && { retryAfter }),
  });
}

/** The settings in the fields of a form. Throws `Invalid`, which names the wrong field. */
export function prefetchSettings(
  fields: ReadonlyMap<string, string>,
  { defaults }: PrefetchRuns,
  kinds: readonly string[],
): Omit<PrefetchSettings, 'files'> {
  const list = (name: string, otherwise: readonly string[]) => {
    const text = fields.get(name);
    const items = text === undefined ? [...otherwise] : text.split(/[\s,]+/).filter((each) => each !== '');
    if (items.length > maxChoices) throw wrongField(name, `Give at most ${maxChoices}.`);
    return items;
  };
  const kind = fields.get('kind') || undefined;
  if (kind !== undefined && !kinds.includes(kind)) throw wrongField('kind', `Use one of ${kinds.join(', ')}.`);
  const frameworks = list('frameworks', defaults.frameworks);
  if (frameworks.some((each) => !/^[\w.+-]{1,100}$/.test(each))) {
    throw wrongField('frameworks', 'Use target frameworks such as net8.0, separated by commas.');
  }
  const platforms = list('platforms', defaults.platforms).map((each) => {
    const platform = parsePlatform(each);
    if (platform) return platform;
    throw wrongField('platforms', 'Use platforms such as linux/amd64, separated by commas.');
  });
  return {
    dryRun: flagIn(fields, 'dry_run', false),
    referrers: flagIn(fields, 'referrers', defaults.referrers),
    platforms,
    frameworks,
    kind,
  };
}

function itemOf({ settings, progress, ...run }: PrefetchRunItem): z.input<typeof prefetchRun> {
  const { known, ended, received, waiting = null, error = null, result } = progress;
  return {
    ...jsonItem(run),
    dry_run: settings.dryRun,
    files: [...settings.files],
    platforms: settings.platforms.map(platformText),
    frameworks: [...settings.frameworks],
    referrers: settings.referrers,
    known,
    ended,
    received_bytes: received,
    waiting,
    error,
    result: result ? resultItem(result) : null,
  };
}

type ResultItem = NonNullable<z.input<typeof prefetchRun>['result']>;

function resultItem(result: PrefetchResult): ResultItem {
  return {
    fetched: talliesOf(result.fetched),
    present: talliesOf(result.present),
    unmeasured: result.unmeasured,
    approximate: result.approximate,
    skipped: result.skipped,
    skipped_total: result.skippedTotal,
    missing: result.missing,
    missing_total: result.missingTotal,
  };
}

function talliesOf(tallies: PrefetchResult['fetched']): ResultItem['fetched'] {
  const { package: packages, manifest: manifests, blob: blobs } = tallies;
  return { packages: tallyOf(packages), manifests: tallyOf(manifests), blobs: tallyOf(blobs) };
}

function tallyOf({ count, bytes }: Tally): { count: number; size_bytes: number } {
  return { count, size_bytes: bytes };
}
