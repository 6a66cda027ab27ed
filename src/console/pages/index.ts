import type { Page } from '../framework/page.ts';
import { claimReleasePage, claimsPage } from './mirror/claims.ts';
import { policyPage } from './mirror/policy.ts';
import { connectPage } from './connect.ts';
import { deprecationChangePage } from './packages/deprecation-change.ts';
import { deleteAdvisoryPage, deprecationPage } from './packages/deprecation.ts';
import { imageDeletePage } from './images/image-delete.ts';
import { imageDigestPage } from './images/image-digest.ts';
import { imagePage } from './images/image.ts';
import { imagesPage } from './images/images.ts';
import { instancesPage } from './operations/instances.ts';
import { jobPage, jobsPage } from './operations/jobs.ts';
import { mirrorPage } from './mirror/mirror.ts';
import { overviewPage } from './overview.ts';
import { findingsPage } from './packages/findings.ts';
import { packageDeletePage, packageListingPage } from './packages/package-delete.ts';
import { packagePage, packageVersionPage } from './packages/package.ts';
import { newPromotionPage, promotionPage, promotionRulesPage, promotionsPage } from './packages/promotions.ts';
import { packagesPage } from './packages/packages.ts';
import { searchPage } from './search.ts';
import { auditPage } from './operations/audit.ts';
import { peoplePage, personalLimitsPage, personPage } from './account/people.ts';
import { accessPage, explainAccessPage, grantPage, newGrantPage } from './account/access.ts';
import { ownTokenPage, ownTokensPage } from './account/own-tokens.ts';
import { publisherPages } from './account/publishers.ts';
import { findTokenPage, tokenPage } from './account/token.ts';
import { newTokenPage, revokePage, sessionPage, sessionsPage, tokensPage } from './account/tokens.ts';
import { importPage, importsPage } from './packages/imports.ts';
import { uploadPage } from './packages/upload.ts';
import { dropEntriesPage, upstreamPage } from './mirror/upstream.ts';
import { storagePage } from './account/storage.ts';
import { usagePage } from './account/usage.ts';
import { explainPage } from './mirror/explain.ts';
import { exposedPage } from './operations/exposed.ts';
import { observedBillsPage } from './operations/observed-bills.ts';
import { failedRequestsPage } from './mirror/failed-requests.ts';
import { deletedPage, purgePage } from './permanence/deleted.ts';
import { permanencePage } from './permanence/permanence.ts';
import { newWaiverPage, waiverPage, waiversPage } from './mirror/waivers.ts';
import { bundleImportPage, bundleSegmentsPage } from './mirror/bundle-import.ts';
import { bundlePage, newBundlePage } from './mirror/bundle.ts';
import { bundlesPage } from './mirror/bundles.ts';
import { prefetchPage, prefetchRunPage } from './mirror/prefetch.ts';
import { deliveryPage } from './operations/webhook-delivery.ts';
import { deleteWebhookPage, secretPage, webhookPage } from './operations/webhook.ts';
import { newWebhookPage, webhooksPage } from './operations/webhooks.ts';

/** All pages except sign-in. */
export const pages: readonly Page[] = [
  overviewPage,
  searchPage,
  packagesPage,
  findingsPage,
  packagePage,
  packageDeletePage,
  packageListingPage,
  deprecationPage,
  deprecationChangePage,
  deleteAdvisoryPage,
  // After the pages whose last segment is no version.
  packageVersionPage,
  imagesPage,
  imagePage,
  imageDeletePage,
  imageDigestPage,
  deletedPage,
  purgePage,
  permanencePage,
  claimsPage,
  policyPage,
  waiversPage,
  newWaiverPage,
  // After the page whose last segment is no number.
  waiverPage,
  promotionsPage,
  newPromotionPage,
  promotionRulesPage,
  // After the pages whose last segment is no number.
  promotionPage,
  claimReleasePage,
  uploadPage,
  importsPage,
  importPage,
  mirrorPage,
  upstreamPage,
  dropEntriesPage,
  prefetchPage,
  prefetchRunPage,
  bundlesPage,
  newBundlePage,
  bundleImportPage,
  bundleSegmentsPage,
  // After the pages whose last segment is no ID.
  bundlePage,
  usagePage,
  storagePage,
  tokensPage,
  newTokenPage,
  revokePage,
  findTokenPage,
  // After the pages whose last segment is no ID.
  tokenPage,
  sessionsPage,
  sessionPage,
  peoplePage,
  personalLimitsPage,
  personPage,
  accessPage,
  newGrantPage,
  explainAccessPage,
  // After the page whose last segment is no ID.
  grantPage,
  ...publisherPages,
  jobsPage,
  jobPage,
  instancesPage,
  auditPage,
  failedRequestsPage,
  exposedPage,
  observedBillsPage,
  explainPage,
  webhooksPage,
  newWebhookPage,
  webhookPage,
  secretPage,
  deleteWebhookPage,
  deliveryPage,
  connectPage,
  ownTokensPage,
  ownTokenPage,
];
