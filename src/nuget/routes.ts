import { Router } from 'express';
import type { Logger } from 'pino';
import type { Config } from '../config/schema.ts';
import type { Authenticator } from '../http/authenticate.ts';
import type { Urls } from '../http/urls.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type { Feed } from './feed.ts';

export interface FeedParts {
  feed: Feed;
  blobs: BlobStore;
  authenticator: Authenticator;
  urls: Urls;
  limits: Config['limits'];
  log: Logger;
}

/** The package feed, mounted at `/v3`. */
export function createFeed(_parts: FeedParts): Router {
  return Router();
}
