import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Router } from 'express';
import { readsHosted } from '../../accounts/principal.ts';
import { DomainError } from '../../runtime/errors.ts';
import { cacheStatus } from '../../http/cache-status.ts';
import { oneLine } from '../../http/reason.ts';
import { contextOf } from '../../http/request-context.ts';
import { sendContent, sendJson } from '../../http/send.ts';
import { packageKey } from '../hosted/packages.ts';
import { setListed } from '../hosted/publish.ts';
import { openSymbols, publishSymbols } from '../hosted/symbol-packages.ts';
import { refuseMethods, type Answering, type FeedCall, type FeedParts } from './call.ts';
import { addDeprecation } from './deprecation-routes.ts';
import { permitting, receivePackage, receiveUpload } from './receive-package.ts';

const symbolHeaders = {
  'Content-Type': 'application/octet-stream',
  'Cache-Control': 'private, max-age=31536000, immutable',
};

/** Push, unlist, relist and deprecate; the push and the look-up of symbols. Each address also takes a slash at its end. */
export function addPublishing(router: Router, answering: Answering, parts: FeedParts): void {
  addDeprecation(router, answering, parts);
  addPackagePublish(router, answering, parts);
  addSymbols(router, answering, parts);
}

// https://learn.microsoft.com/nuget/api/package-publish-resource
function addPackagePublish(router: Router, answering: Answering, parts: FeedParts): void {
  const { feed } = parts;
  router.put(
    '/push',
    answering('write', (call) => answerPush(parts, call), 'upload'),
  );
  router.delete(
    '/push/:id/:version',
    answering('delete', async ({ response, accountId, path }) => {
      await setListed(feed, accountId, path['id']!, path['version']!, false, true);
      response.writeHead(204).end();
    }),
  );
  router.post(
    '/push/:id/:version',
    answering('write', async ({ request, response, accountId, path }) => {
      await setListed(feed, accountId, path['id']!, path['version']!, true);
      sendJson(request, response, 200, {});
    }),
  );
  refuseMethods(router, '/push', 'PUT');
  refuseMethods(router, '/push/:id/:version', 'DELETE, POST');
}

async function answerPush(parts: FeedParts, call: FeedCall): Promise<void> {
  const { request, response, addresses } = call;
  const { id, version, warnings } = await receivePackage(parts, call);
  for (const warning of warnings) response.appendHeader('X-NuGet-Warning', oneLine(warning));
  sendJson(request, response, 201, { id, version }, { Location: addresses.file(id, version, 'nupkg') });
}

// https://learn.microsoft.com/nuget/api/symbol-package-publish-resource
function addSymbols(router: Router, answering: Answering, parts: FeedParts): void {
  const { feed } = parts;
  router.put(
    '/symbols',
    answering(
      'write',
      async (call) => {
        const { request, response, accountId } = call;
        const staged = await receiveUpload(feed, call);
        const published = await publishSymbols(feed, accountId, staged, permitting(call));
        sendJson(request, response, 201, published);
      },
      'upload',
    ),
  );
  // Simple Symbol Query Protocol. dotnet-symbol sends an empty user name, and other debuggers the user's own.
  router.get(
    '/symbols/:file/:key/:again',
    answering('read', (call) => sendPdb(parts, call), undefined, undefined, { anyUser: true }),
  );
  refuseMethods(router, '/symbols', 'PUT');
}

async function sendPdb({ feed, symbols }: FeedParts, call: FeedCall): Promise<void> {
  const { request, response, principal, accountId, path } = call;
  const [file, key] = [path['file']!, path['key']!];
  const same = file.toLowerCase() === path['again']!.toLowerCase();
  // A look-up of symbols works like a search: only packages among the token's names are found.
  const only = principal.names?.of('package');
  const pdb = same && readsHosted(principal) ? await openSymbols(feed, accountId, file, key, only) : undefined;
  if (pdb) return sendStream(request, response, pdb);
  const checksum = request.headers['symbolchecksum'] as string | undefined;
  const mayAsk = same && (only?.includes(packageKey(file.replace(/\.pdb$/i, ''))) ?? true);
  const entry = mayAsk ? await symbols.open(accountId, file, key, checksum) : undefined;
  if (!entry) throw new DomainError('NotFound', 'There are no symbols of this file in this feed or its upstreams.');
  const headers = { ...symbolHeaders, ...cacheStatus(entry.outcome) };
  return sendContent(request, response, entry.content, { headers, ranges: true });
}

/** The bytes are inflated from a zip, so ranges are not possible. */
async function sendStream(
  request: IncomingMessage,
  response: ServerResponse,
  { size, stream }: { size: number; stream: Readable },
): Promise<void> {
  response.writeHead(200, { ...symbolHeaders, ...cacheStatus('hosted'), 'Content-Length': size });
  if (request.method === 'HEAD') {
    stream.destroy();
    response.end();
    return;
  }
  const context = contextOf(response);
  stream.on('data', (piece: Buffer) => (context.sent += piece.length));
  await pipeline(stream, response).catch((error: NodeJS.ErrnoException) => {
    // A client that disconnects is not an error.
    if (error.code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  });
}
