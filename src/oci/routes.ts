import type { RequestListener } from 'node:http';
import type { Logger } from 'pino';
import type { Config } from '../config/schema.ts';
import type { Authenticator } from '../http/authenticate.ts';
import type { Urls } from '../http/urls.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type { Images } from './images.ts';

export interface RegistryParts {
  images: Images;
  blobs: BlobStore;
  authenticator: Authenticator;
  urls: Urls;
  limits: Config['limits'];
  log: Logger;
}

/** The container registry: everything under `/v2`. */
export function createRegistry(_parts: RegistryParts): RequestListener {
  return (_request, response) => void response.writeHead(404).end();
}
