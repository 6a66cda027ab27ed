import type { AccountViews } from '../../mirror/policy/account-views.ts';
import type { KnownAdvisories } from './known-advisories.ts';
import type { PackageMirror } from './package-mirror.ts';
import type { UpstreamRegistrations } from './upstream-registration.ts';
import type { UpstreamSearch } from './upstream-search.ts';
import type { UpstreamVulnerabilities } from './upstream-vulnerabilities.ts';

/** The upstream feeds that serve an account. */
export interface FeedView {
  mirror: PackageMirror;
  registrations: UpstreamRegistrations;
  search: UpstreamSearch;
  vulnerabilities: UpstreamVulnerabilities;
  advisories: KnownAdvisories;
}

export type FeedViews = AccountViews<FeedView>;
