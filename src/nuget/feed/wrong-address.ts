import type { RequestHandler } from 'express';
import { problem } from '../../http/problem.ts';
import { oneLine } from '../../http/reason.ts';
import type { Urls } from '../../http/urls.ts';

/** Where feeds of other servers and of NuGet V2 are. */
export const otherFeedPaths = ['/nuget', '/api/v2', '/api/v3'];

/** Answers 404 with the address of the package source. nuget.exe and dotnet show only the status line. */
export function wrongAddress(urls: Urls): RequestHandler {
  return (request, response) => {
    const source = `${urls.of(request).feed}/v3/index.json`;
    const message = `There is nothing at this address. The feed is NuGet V3, not V2: use ${source} as package source, also for pushes.`;
    response.statusMessage = oneLine(message);
    problem(request, response, 404, 'NotFound', message);
  };
}
