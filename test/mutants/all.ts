import { accounts } from './accounts.ts';
import { database } from './database.ts';
import { health } from './health.ts';
import { http } from './http.ts';
import { jobs } from './jobs.ts';
import { mirror } from './mirror.ts';
import type { Mutant } from './mutant.ts';
import { nuget } from './nuget.ts';
import { oci } from './oci.ts';
import { pages } from './pages.ts';
import { prefetch } from './prefetch.ts';
import { process } from './process.ts';
import { storage } from './storage.ts';
import { upstream } from './upstream.ts';
import { usage } from './usage.ts';

export const mutants: readonly Mutant[] = [
  ...accounts,
  ...database,
  ...health,
  ...http,
  ...jobs,
  ...mirror,
  ...nuget,
  ...oci,
  ...pages,
  ...prefetch,
  ...process,
  ...storage,
  ...upstream,
  ...usage,
];
