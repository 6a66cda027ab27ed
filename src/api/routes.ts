import { Router } from 'express';
import type { Logger } from 'pino';
import type { Accounts } from '../accounts/accounts.ts';
import type { Tokens } from '../accounts/tokens.ts';
import type { Database } from '../database/database.ts';
import type { Authenticator } from '../http/authenticate.ts';
import type { Urls } from '../http/urls.ts';
import type { Feed } from '../nuget/feed.ts';
import type { Images } from '../oci/images.ts';

export interface ApiParts {
  database: Database;
  accounts: Accounts;
  tokens: Tokens;
  feed: Feed;
  images: Images;
  authenticator: Authenticator;
  urls: Urls;
  log: Logger;
  now: () => number;
}

/** The REST management API, mounted at `/v1`. */
export function createApi(_parts: ApiParts): Router {
  return Router();
}
