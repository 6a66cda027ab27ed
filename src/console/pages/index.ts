import type { Page } from '../page.ts';
import { auditPage } from './audit.ts';
import { connectPage } from './connect.ts';
import { jobPage, jobsPage } from './jobs.ts';
import { overviewPage } from './overview.ts';
import { publisherPages } from './publishers.ts';
import { newTokenPage, revokePage, sessionPage, tokensPage } from './tokens.ts';
import { usagePage } from './usage.ts';

/** All pages except sign-in. */
export const pages: readonly Page[] = [
  overviewPage,
  usagePage,
  tokensPage,
  newTokenPage,
  revokePage,
  sessionPage,
  ...publisherPages,
  jobsPage,
  jobPage,
  auditPage,
  connectPage,
];
