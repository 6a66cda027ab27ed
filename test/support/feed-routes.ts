import type { ExecutionContext } from 'ava';
import { Router } from 'express';
import { type RequestContext } from '../../src/http/request-context.ts';
import { Addresses } from '../../src/nuget/feed/addresses.ts';
import type { Answering, FeedCall } from '../../src/nuget/feed/call.ts';
import { isDomainError } from '../../src/runtime/errors.ts';
import { answerRequests } from './answers.ts';

export interface RouteAnswer {
  status: number;
  headers: Headers;
  body: Buffer;
  /** What the route needs; undefined if no route answered with a call. */
  needs: unknown[] | undefined;
  /** What the route noted of the request. */
  context: RequestContext;
}

/** Routes of the feed without sign-in: each request becomes a call with the parts of `call`. Errors are answered with status 599. */
export async function feedRoutes(
  t: Pick<ExecutionContext, 'teardown'>,
  add: (router: Router, answering: Answering) => void,
  call: Partial<FeedCall>,
) {
  let needs: unknown[] | undefined;
  let failed: unknown;
  let ended = 0;
  const answering: Answering =
    (scope, answer, ...more) =>
    async (request, response) => {
      needs = [scope, ...more];
      const path = request.params as Record<string, string>;
      const addresses = new Addresses('https://here.test');
      const common = { request, response, accountId: 1, addresses, isPast: false, path };
      try {
        await answer({ ...common, ...call } as FeedCall);
      } catch (error) {
        failed = error;
        if (response.headersSent) return;
        if (!isDomainError(error)) throw error;
        const body = { name: error.name, message: error.message, detail: error.detail };
        response.writeHead(599, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
      } finally {
        ended += 1;
      }
    };
  const router = Router();
  add(router, answering);
  let context: RequestContext | undefined;
  const port = await answerRequests(t, (request, response) => {
    context = response.context;
    router(request as never, response as never, () => response.writeHead(598).end());
  });
  const url = `http://127.0.0.1:${port}`;
  return {
    /** The error of the last request that failed. */
    failure: () => failed,
    /** How many calls have ended. */
    ended: () => ended,
    ask: async (path: string, options: RequestInit = {}): Promise<RouteAnswer> => {
      needs = undefined;
      const response = await fetch(`${url}${path}`, options);
      const body = Buffer.from(await response.arrayBuffer());
      return { status: response.status, headers: response.headers, body, needs, context: context! };
    },
  };
}

/** The JSON of an answer. */
export function routeJson({ body }: RouteAnswer): any {
  return JSON.parse(body.toString());
}
