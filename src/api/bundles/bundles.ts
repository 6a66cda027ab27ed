import { z } from 'zod';
import type { Bundles, BundleRecord } from '../../bundle/bundles.ts';
import type { BundleRuns } from '../../bundle/runs/bundle-runs.ts';
import type { MadeRun } from '../../bundle/runs/run.ts';
import type { TrustedKeys } from '../../bundle/trust.ts';
import { fileOperation } from '../framework/file.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { timedPage } from '../framework/sorted.ts';
import { withFields, type PrefetchOperationParts } from '../prefetch/prefetch.ts';
import { readMakeForm, segmentNumber } from './bundle-form.ts';
import { bundleItem, makingItem } from './bundle-items.ts';
import { bundleForm, bundleList, bundleMaking, bundlesQuery } from './bundle-schemas.ts';
import { keyOperations } from './keys.ts';
import { bundleAllNames as allNames, importOperations } from './imports.ts';

export interface BundleOperationParts {
  runs: BundleRuns;
  bundles: Bundles;
  trust: TrustedKeys;
  now: () => number;
  prefetches: PrefetchOperationParts;
}

const action = 'operate';
const id = 'The ID of the bundle that is made';

/** `/bundles`: bundles have content of the mirror, which all accounts share. */
export function bundleOperations(parts: BundleOperationParts): Operation[] {
  const { runs, bundles, trust, prefetches } = parts;
  const shown = async (run: MadeRun) => makingItem(run, await runs.files.segments(run.id), await trust.list());
  return [
    operation({
      method: 'get',
      path: '/bundles',
      id: 'listBundles',
      summary: 'List the bundles that were made or imported here, the latest first',
      action,
      allNames,
      query: bundlesQuery,
      status: 200,
      answer: bundleList,
      run: async ({ query }) => {
        const { entries, ...page } = await timedPage(query, {
          name: `bundles ${query.direction}`,
          key: z.tuple([z.int(), z.string()]),
          keyOf: (each: BundleRecord) => [each.changedAt, each.id] as [number, string],
          read: (limit, after, isOldest) => bundles.list(query.direction, limit, after, isOldest),
          isVisible: ({ source, state }) => source.toLowerCase().includes(query.q) && (query.state ?? state) === state,
          bytesOf: ({ summary }) => summary.bytes,
        });
        const keys = await trust.list();
        return { items: entries.map((each) => bundleItem(each, keys)), ...page };
      },
    }),
    operation({
      method: 'post',
      path: '/bundles',
      id: 'makeBundle',
      summary:
        'Fetch what files list, and make a bundle of it, in the background. Its segments are kept for a day, and those of the latest 3 bundles',
      action,
      allNames,
      receives: { fields: bundleForm, stores: false },
      status: 201,
      answer: bundleMaking,
      run: async ({ principal, receiving }) => {
        const fields = new Map<string, string>();
        try {
          return await prefetches.runs.receive(async () => {
            const { settings, files, receipt } = await readMakeForm(runs, prefetches, receiving!, fields);
            return shown(await runs.make(principal.accountId, settings, files, receipt));
          });
        } catch (error) {
          throw withFields(error, fields);
        }
      },
    }),
    ...keyOperations(parts),
    ...importOperations(parts),
    operation({
      method: 'get',
      path: '/bundles/:id',
      id: 'getBundle',
      summary: 'Show the progress of a bundle that is made, or its result',
      action,
      allNames,
      params: { id },
      status: 200,
      answer: bundleMaking,
      run: async ({ params }) => shown(await runs.makingOf(params['id']!)),
    }),
    operation({
      method: 'delete',
      path: '/bundles/:id',
      id: 'deleteBundle',
      summary: 'Stop making a bundle; or delete one that was made, with its segments',
      action,
      allNames,
      params: { id },
      status: 204,
      run: ({ params }) => runs.cancel('made', params['id']!),
    }),
    fileOperation({
      path: '/bundles/:id/segments/:number',
      id: 'getBundleSegment',
      summary: 'Download a segment of a bundle that was made',
      action,
      allNames,
      params: { id, number: 'The number of the segment, from 1' },
      sends: ['application/x-tar'],
      run: async ({ params }) => {
        const number = segmentNumber(params['number']!);
        const content = await runs.open(params['id']!, number);
        return { content, type: 'application/x-tar', name: `${String(number).padStart(4, '0')}.tar` };
      },
    }),
  ];
}
