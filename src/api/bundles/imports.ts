import type { ImportedRun } from '../../bundle/runs/run.ts';
import { fileOperation } from '../framework/file.ts';
import { timeOf } from '../framework/schemas.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { contextOf } from '../../http/request-context.ts';
import { bundleImport, bundleImportRequest, bundleReceipt, bundleRunList, segmentsForm } from './bundle-schemas.ts';
import { readSegmentsForm, segmentNumber } from './bundle-form.ts';
import { importItem, makingItem } from './bundle-items.ts';
import type { BundleOperationParts } from './bundles.ts';

const action = 'operate';
/** Refuses a token with name patterns. */
export const bundleAllNames = 'A token with name patterns cannot use bundles, because they have any names.';
const allNames = bundleAllNames;
const id = 'The ID of the import';

/** `/bundles/runs`, and `/bundles/imports`, to which segments are sent before they are imported. */
export function importOperations({ runs, trust, prefetches }: BundleOperationParts): Operation[] {
  const shown = async (run: ImportedRun) => importItem(run, await runs.files.segments(run.id), await trust.list());
  return [
    operation({
      method: 'get',
      path: '/bundles/runs',
      id: 'listBundleRuns',
      summary: 'List the latest 50 bundles that were made and the latest 50 imports by this API, the latest first',
      action,
      allNames,
      status: 200,
      answer: bundleRunList,
      run: async () => {
        const { platforms, frameworks, referrers } = prefetches.runs.defaults;
        const keys = await trust.list();
        const made = await runs.table.list('made');
        const imported = await runs.table.list('imported');
        const receipt = await runs.files.receipt();
        return {
          made: await Promise.all(made.map(async (run) => makingItem(run, await runs.files.segments(run.id), keys))),
          imported: await Promise.all(
            imported.map(async (run) => importItem(run, await runs.files.segments(run.id), keys)),
          ),
          kinds: [...prefetches.kinds],
          defaults: { platforms: [...platforms], frameworks: [...frameworks], referrers },
          signs: runs.signs,
          segment_limit_bytes: runs.segmentLimit,
          receipt: receipt ? { size_bytes: receipt.size, written_at: timeOf(receipt.writtenAt) } : null,
        };
      },
    }),
    operation({
      method: 'post',
      path: '/bundles/receipt',
      id: 'writeBundleReceipt',
      summary:
        'Write a receipt of what is mirrored here, in place of the last one on this server. What it names is kept from eviction until the next one',
      action,
      allNames,
      status: 201,
      answer: bundleReceipt,
      run: async () => {
        const { id: digest, digests: items, size, key } = await runs.writeReceipt();
        return { digest, items, size_bytes: size, key };
      },
    }),
    fileOperation({
      path: '/bundles/receipt',
      id: 'getBundleReceipt',
      summary: 'Download the receipt that was written last on this server, for the source of the next bundle',
      action,
      allNames,
      sends: ['application/octet-stream'],
      run: async () => ({
        content: await runs.files.openReceipt(),
        type: 'application/octet-stream',
        name: 'receipt',
      }),
    }),
    operation({
      method: 'post',
      path: '/bundles/imports',
      id: 'beginBundleImport',
      summary: 'Begin an import. Then send its segments, and run it',
      action,
      allNames,
      status: 201,
      answer: bundleImport,
      run: async () => shown(await runs.beginImport()),
    }),
    operation({
      method: 'get',
      path: '/bundles/imports/:id',
      id: 'getBundleImport',
      summary: 'Show the segments of an import, its progress or its result',
      action,
      allNames,
      params: { id },
      status: 200,
      answer: bundleImport,
      run: async ({ params }) => shown(await runs.importOf(params['id']!)),
    }),
    operation({
      method: 'put',
      path: '/bundles/imports/:id/segments/:number',
      id: 'putBundleSegment',
      summary: 'Send a segment, in place of an earlier one with this number',
      action,
      allNames,
      params: { id, number: 'The number of the segment, from 1' },
      receives: { stores: false },
      status: 200,
      answer: bundleImport,
      run: async ({ params, receiving }) => {
        const { request, response } = receiving!;
        const number = segmentNumber(params['number']!);
        const announced = Number(request.headers['content-length'] ?? 0);
        const { idle } = prefetches;
        const options = { announced, idle, consume: true };
        contextOf(response).received = await runs.receive(params['id']!, number, request, options);
        return shown(await runs.importOf(params['id']!));
      },
    }),
    operation({
      method: 'post',
      path: '/bundles/imports/:id/segments',
      id: 'sendBundleSegments',
      summary: 'Send segments in a form, as a browser does. The names of the files have their numbers',
      action,
      allNames,
      params: { id },
      receives: { fields: segmentsForm, stores: false },
      status: 200,
      answer: bundleImport,
      run: async ({ params, receiving }) => {
        await runs.importOf(params['id']!);
        await readSegmentsForm(runs, receiving!, params['id']!, prefetches.idle);
        return shown(await runs.importOf(params['id']!));
      },
    }),
    operation({
      method: 'post',
      path: '/bundles/imports/:id/run',
      id: 'runBundleImport',
      summary:
        'Import the segments that were sent, or only check them, in the background. Send more, and run it again, while some are needed. One import runs at a time',
      action,
      allNames,
      params: { id },
      body: bundleImportRequest,
      status: 201,
      answer: bundleImport,
      run: async ({ params, body }) => shown(await runs.runImport(params['id']!, body)),
    }),
    operation({
      method: 'delete',
      path: '/bundles/imports/:id',
      id: 'endBundleImport',
      summary: 'Stop an import that runs; or give up one that does not, with its segments. What is shown stays',
      action,
      allNames,
      params: { id },
      status: 204,
      run: ({ params }) => runs.cancel('imported', params['id']!),
    }),
  ];
}
