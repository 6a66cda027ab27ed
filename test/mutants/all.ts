import { accounts } from './accounts.ts';
import { backup } from './backup.ts';
import { database } from './database.ts';
import { health } from './health.ts';
import { http } from './http.ts';
import { identity } from './identity.ts';
import { instances } from './instances.ts';
import { jobs } from './jobs.ts';
import { limits } from './limits.ts';
import { metrics } from './metrics.ts';
import { mirror } from './mirror.ts';
import type { Mutant } from './mutant.ts';
import { nuget } from './nuget.ts';
import { oci } from './oci.ts';
import { pages } from './pages.ts';
import { prefetch } from './prefetch.ts';
import { process } from './process.ts';
import { s3 } from './s3.ts';
import { storage } from './storage.ts';
import { upstream } from './upstream.ts';
import { usage } from './usage.ts';
import { webhooks } from './webhooks.ts';

export const mutants: readonly Mutant[] = [
  ...accounts,
  ...backup,
  ...database,
  ...health,
  ...http,
  ...identity,
  ...instances,
  ...jobs,
  ...limits,
  ...metrics,
  ...mirror,
  ...nuget,
  ...oci,
  ...pages,
  ...prefetch,
  ...process,
  ...s3,
  ...storage,
  ...upstream,
  ...usage,
  ...webhooks,
];
