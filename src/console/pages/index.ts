import type { Page } from '../page.ts';
import { auditPage } from './audit.ts';
import { connectPage } from './connect.ts';
import { jobPage, jobsPage } from './jobs.ts';
import { mirrorPage } from './mirror.ts';
import { overviewPage } from './overview.ts';
import { newTokenPage, revokePage, sessionPage, tokensPage } from './tokens.ts';
import { uploadPage } from './upload.ts';
import { dropEntriesPage, upstreamPage } from './upstream.ts';
import { usagePage } from './usage.ts';
import { prefetchPage, prefetchRunPage } from './prefetch.ts';
import { deliveryPage } from './webhook-delivery.ts';
import { deleteWebhookPage, secretPage, webhookPage } from './webhook.ts';
import { newWebhookPage, webhooksPage } from './webhooks.ts';

/** All pages except sign-in. */
export const pages: readonly Page[] = [
  overviewPage,
  uploadPage,
  mirrorPage,
  upstreamPage,
  dropEntriesPage,
  prefetchPage,
  prefetchRunPage,
  usagePage,
  tokensPage,
  newTokenPage,
  revokePage,
  sessionPage,
  jobsPage,
  jobPage,
  auditPage,
  webhooksPage,
  newWebhookPage,
  webhookPage,
  secretPage,
  deleteWebhookPage,
  deliveryPage,
  connectPage,
];
