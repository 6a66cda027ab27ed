import type { Page } from '../page.ts';
import { claimReleasePage, claimsPage } from './claims.ts';
import { connectPage } from './connect.ts';
import { deleteAdvisoryPage, deprecationPage } from './deprecation.ts';
import { imageDeletePage } from './image-delete.ts';
import { imageDigestPage } from './image-digest.ts';
import { imagePage } from './image.ts';
import { imagesPage } from './images.ts';
import { jobPage, jobsPage } from './jobs.ts';
import { mirrorPage } from './mirror.ts';
import { overviewPage } from './overview.ts';
import { packageDeletePage, packageListingPage } from './package-delete.ts';
import { packagePage, packageVersionPage } from './package.ts';
import { packagesPage } from './packages.ts';
import { searchPage } from './search.ts';
import { auditPage } from './audit.ts';
import { publisherPages } from './publishers.ts';
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
  searchPage,
  packagesPage,
  packagePage,
  packageDeletePage,
  packageListingPage,
  deprecationPage,
  deleteAdvisoryPage,
  // After the pages whose last segment is no version.
  packageVersionPage,
  imagesPage,
  imagePage,
  imageDeletePage,
  imageDigestPage,
  claimsPage,
  claimReleasePage,
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
  ...publisherPages,
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
