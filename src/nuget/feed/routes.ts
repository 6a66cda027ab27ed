import { Router } from 'express';
import { answeringWith } from './answering.ts';
import type { FeedParts } from './call.ts';
import { addPublishing } from './publish-routes.ts';
import { addReading } from './read-routes.ts';
import { addSearching } from './search-routes.ts';
import { wrongAddress } from './wrong-address.ts';

/** The package feed, mounted at `/v3`. https://learn.microsoft.com/nuget/api/overview */
export function createFeed(parts: FeedParts): Router {
  const { source } = parts;
  const answering = answeringWith(parts, () => ({ prefix: '', source, isPast: false }));
  const router = Router();
  addReading(router, answering, parts);
  addSearching(router, answering, parts);
  addPublishing(router, answering, parts);
  router.use(wrongAddress(parts.urls));
  return router;
}
