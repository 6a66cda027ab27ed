import { Router } from 'express';
import { endOfDay } from '../../runtime/past-day.ts';
import { problem } from '../../http/problem.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import type { PastPackages } from '../source/past-packages.ts';
import { isShared } from '../source/reader.ts';
import { answeringWith, type PlaceOf } from './answering.ts';
import type { Answering, FeedParts } from './call.ts';
import { addReading } from './read-routes.ts';

/** The path of the feed as of a date. */
export const pastFeedPath = '/as-of/:date/v3';

/** The feed as it was at the end of a day in UTC: what restores need, and nothing that changes packages or searches them. */
export function createPastFeed(parts: FeedParts, past: PastPackages): Router {
  const placeOf: PlaceOf = ({ date }) => ({
    prefix: `/as-of/${date!}`,
    source: past.at(endOfDay(date!, parts.feed.now())),
    isPast: true,
  });
  const answering = answeringWith(parts, placeOf);
  const explaining: Answering = (scope, answer, ...more) =>
    answering(
      scope,
      async (call) => {
        try {
          await answer(call);
        } catch (error) {
          const { id, version, date } = call.path;
          if (!isDomainError(error, 'NotFound') || id === undefined) throw error;
          const { principal, accountId } = call;
          const since = await past.knownSince({ accountId, isShared: isShared(principal, accountId) }, id, version);
          if (since === undefined || since <= date!) throw error;
          const named = version === undefined ? id : `${id} ${version}`;
          const message = `${named.slice(0, 200)} is known from ${since}, and this address shows the feed of ${date}.`;
          throw new DomainError('NotFound', message);
        }
      },
      ...more,
    );
  const router = Router({ mergeParams: true });
  addReading(router, explaining, parts);
  router.use((request, response) => {
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('Allow', 'GET, HEAD');
      problem(
        request,
        response,
        405,
        'MethodNotAllowed',
        'The past cannot be changed: push to the feed without a date.',
      );
    } else {
      const message = 'The feed as of a date has packages and their registrations, and no search. Check the address.';
      problem(request, response, 404, 'NotFound', message);
    }
  });
  return router;
}
