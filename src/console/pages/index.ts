import type { Page } from '../page.ts';
import { claimReleasePage, claimsPage } from './claims.ts';
import { connectPage } from './connect.ts';
import { imageDeletePage } from './image-delete.ts';
import { imageDigestPage } from './image-digest.ts';
import { imagePage } from './image.ts';
import { imagesPage } from './images.ts';
import { overviewPage } from './overview.ts';
import { packageDeletePage, packageListingPage } from './package-delete.ts';
import { packagePage, packageVersionPage } from './package.ts';
import { packagesPage } from './packages.ts';
import { searchPage } from './search.ts';
import { auditPage } from './audit.ts';
import { jobPage, jobsPage } from './jobs.ts';
import { newTokenPage, revokePage, sessionPage, tokensPage } from './tokens.ts';
import { usagePage } from './usage.ts';

/** All pages except sign-in. */
export const pages: readonly Page[] = [
  overviewPage,
  searchPage,
  packagesPage,
  packagePage,
  packageDeletePage,
  packageListingPage,
  packageVersionPage,
  imagesPage,
  imagePage,
  imageDeletePage,
  imageDigestPage,
  claimsPage,
  claimReleasePage,
  usagePage,
  tokensPage,
  newTokenPage,
  revokePage,
  sessionPage,
  jobsPage,
  jobPage,
  auditPage,
  connectPage,
];
