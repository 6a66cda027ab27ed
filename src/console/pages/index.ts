import type { Page } from '../page.ts';
import { auditPage } from './audit.ts';
import { connectPage } from './connect.ts';
import { deleteAdvisoryPage, deprecationPage } from './deprecation.ts';
import { jobPage, jobsPage } from './jobs.ts';
import { overviewPage } from './overview.ts';
import { newTokenPage, revokePage, sessionPage, tokensPage } from './tokens.ts';
import { usagePage } from './usage.ts';

/** All pages except sign-in. */
export const pages: readonly Page[] = [
  overviewPage,
  deprecationPage,
  deleteAdvisoryPage,
  usagePage,
  ...[tokensPage, newTokenPage, revokePage, sessionPage],
  ...[jobsPage, jobPage],
  auditPage,
  connectPage,
];
