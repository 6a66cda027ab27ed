import type { Page } from '../page.ts';
import { connectPage } from './connect.ts';
import { overviewPage } from './overview.ts';
import { newTokenPage, revokePage, sessionPage, tokensPage } from './tokens.ts';

/** All pages except sign-in. */
export const pages: readonly Page[] = [overviewPage, connectPage, tokensPage, newTokenPage, revokePage, sessionPage];
