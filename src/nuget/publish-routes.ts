import type { Router } from 'express';
import { exchangeOf } from '../http/exchange.ts';
import { sendJson } from '../http/send.ts';
import { oneLine } from './errors.ts';
import { refuseMethods, type Answering, type FeedParts } from './routes.ts';
import { receiveFile } from './upload.ts';

/** Push, unlist and relist; each address with and without a slash at its end. */
export function addPublishing(router: Router, answering: Answering, { feed, blobs, limits, log }: FeedParts): void {
  const upload = { size: limits.nupkg, idle: limits.uploadIdle };

  // https://learn.microsoft.com/nuget/api/package-publish-resource
  router.put(
    '/push',
    answering('write', async ({ request, response, accountId, addresses }) => {
      const staged = await receiveFile(request, blobs, upload);
      exchangeOf(response).received = staged.size;
      const { id, version, warnings } = await feed.publish(accountId, staged);
      log.info({ request: exchangeOf(response).id, id, version }, 'package published');
      if (warnings.length > 0) response.setHeader('X-NuGet-Warning', warnings.map(oneLine));
      sendJson(request, response, 201, { id, version }, { Location: addresses.file(id, version, 'nupkg') });
    }),
  );
  router.delete(
    '/push/:id/:version',
    answering('delete', async ({ response, accountId, path }) => {
      await feed.setListed(accountId, path['id']!, path['version']!, false);
      response.writeHead(204).end();
    }),
  );
  router.post(
    '/push/:id/:version',
    answering('write', async ({ request, response, accountId, path }) => {
      await feed.setListed(accountId, path['id']!, path['version']!, true);
      sendJson(request, response, 200, {});
    }),
  );
  refuseMethods(router, '/push', 'PUT');
  refuseMethods(router, '/push/:id/:version', 'DELETE, POST');
}
