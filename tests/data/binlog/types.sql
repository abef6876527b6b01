drop database if exists ty; create database ty character set utf8mb4; use ty;
set time_zone='+00:00'; set sql_mode='ALLOW_INVALID_DATES';
create table n (id int primary key, a tinyint, b tinyint unsigned, c smallint, d smallint unsigned, e mediumint, f mediumint unsigned, g int, h int unsigned, i bigint, j bigint unsigned, k decimal(10,3), l decimal(38,10), m decimal(65,30), n float, o double, p bit(1), q bit(9), r bit(64), s year, t decimal(1,1), u decimal(20,0) unsigned);
insert into n values (1,-128,255,-32768,65535,-8388608,16777215,-2147483648,4294967295,-9223372036854775808,18446744073709551615,-1234567.891,-1234567890123456789012345678.0123456789,-99999999999999999999999999999999999.999999999999999999999999999999,1.5,-2.25e300,b'1',b'101010101',b'1111111111111111111111111111111111111111111111111111111111111111',2155,-0.9,12345678901234567890),
(2,127,0,32767,0,8388607,0,2147483647,0,9223372036854775807,0,0.001,0,0.000000000000000000000000000001,-1.17549e-38,0,b'0',0,b'1',0,0.1,0),(3,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,1901,null,null);
update n set a=1 where id=1; update n set id=10 where id=2; delete from n where id=3;
create table d (id varchar(20) primary key, a date, b datetime, c datetime(1), d datetime(2), e datetime(3), f datetime(4), g datetime(6), h timestamp null, i timestamp(3) null, j timestamp(6) null, k time, l time(1), m time(2), n time(3), o time(4), p time(5), q time(6));
insert into d values ('x','2024-02-29','1000-01-01 00:00:00','9999-12-31 23:59:59.9','2024-01-02 03:04:05.67','2024-01-02 03:04:05.678','2024-01-02 03:04:05.6789','2024-01-02 03:04:05.678901','1970-01-01 00:00:01','2038-01-19 03:14:07.999','2024-01-02 03:04:05.678901','-838:59:59','-00:00:00.1','-00:00:01.25','838:59:58.999','-12:34:56.7891','-00:00:00.00001','-838:59:58.999999'),
('y','0000-00-00','0000-00-00','2024-00-10','2024-02-31','2024-01-00',null,'0000-00-00','0000-00-00',0,0,'838:59:59',0,'00:00:00.01','-1',null,'10:11:12.00001','838:59:58.000001');
create table s (id binary(4) primary key, a char(10), b varchar(300) character set latin1, c text, d tinytext, e longtext, f char(100), g varchar(10) character set sjis, h varbinary(10), i blob, j longblob, k enum('a','b','ü''x'), l set('x','y','z'), m char(3) character set ucs2, n varchar(5) character set utf16, o enum('ä','ö') character set latin1);
insert into s values (0x01000000,'ab  ','é','日本','x','y','trail   ','ｱ表',0x0001,'',0xff00,'ü''x','x,z','€','𝄞','ö'),(0x00000001,'','','','','','',  '','',0x00,'','b','','','', 'ä'),(0xffffffff,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null);
insert ignore into s(id,k) values (0x02000000,'nope');
create table g (id int primary key, p point, q geometry); insert into g values (1, ST_GeomFromText('POINT(1 2)'), ST_GeomFromText('LINESTRING(0 0,1 1)'));
create table v (id int primary key, a int, b int generated always as (a*2) virtual, c int generated always as (a*3) stored, d varchar(10)); insert into v(id,a,d) values (1,5,'q'); update v set a=6; delete from v;
create table ci (id varchar(10) primary key, x int); insert into ci values('a',1); update ci set id='A'; 
start transaction; insert into v(id,a) values (7,7); savepoint s1; insert into v(id,a) values (8,8); rollback to s1; insert into v(id,a) values (9,9); commit;
start transaction; insert into v(id,a) values (17,7); rollback;
alter table v add column z int default 4; insert into v(id,a,z) values (20,1,1);
truncate table ci; insert into ci values ('b',2);
create table ctas (primary key(id)) as select id, x from ci;
