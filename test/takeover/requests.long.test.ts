import { requestsOn } from './requests-suite.ts';

requestsOn('mysql');
